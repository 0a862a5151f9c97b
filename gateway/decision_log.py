"""The last decisions with all their terms, by request id: what `/admin/requests/{id}` answers from. No prompt text."""

from dataclasses import asdict, dataclass
from datetime import datetime

from gateway.scheduling import Decision, terms_of
from gateway.types import InferenceRequest, Plan, RequestId

MOST_KEPT = 4096
"""About 4 MB with two endpoints: a decision is a few small objects an endpoint."""


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """One decision; a request that was tried again has the last one."""

    opened_at: datetime
    tenant_id: str
    model: str
    prompt_tokens: int | None
    token_source: str
    blocks: int
    decision: Decision

    def as_json(self) -> dict[str, object]:
        """Plain data, terms in seconds."""
        decision = self.decision
        terms: dict[str, object] = {}
        for candidate in decision.candidates:
            term = terms_of(candidate, decision.prompt_tokens, decision.expected_output_tokens)
            terms[candidate.endpoint_id] = {**asdict(term), "cost_s": term.cost_s, "at_best": candidate.at_best}
        return {
            "opened_at": self.opened_at.isoformat(),
            "tenant": self.tenant_id,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "token_source": self.token_source,
            "blocks": self.blocks,
            "endpoint": decision.endpoint_id,
            "reason": decision.reason.value,
            "expected_cached_tokens": decision.expected_cached_tokens,
            "uncached_tokens": decision.uncached_tokens,
            "terms": terms,
            **_observed(decision),
            "filtered": {name: why.value for name, why in decision.filtered.items()},
        }


def _observed(decision: Decision) -> dict[str, object]:
    """What the policy that is only watched would have done."""
    observed = decision.observed
    if observed is None:
        return {}
    return {
        "observed": {
            "endpoint": observed.endpoint_id,
            "reason": observed.reason.value,
            "expected_cached_tokens": observed.expected_cached_tokens,
            "uncached_tokens": observed.uncached_tokens,
        }
    }


class DecisionLog:
    """The last `MOST_KEPT` decisions, oldest out first. O(1)."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[RequestId, KeptDecision] = {}

    def keep(self, request: InferenceRequest, plan: Plan, decision: Decision) -> None:
        """Remember a decision."""
        self._kept[request.id] = KeptDecision(
            opened_at=request.opened_at,
            tenant_id=request.tenant.id,
            model=request.model,
            prompt_tokens=plan.prompt_tokens,
            token_source=plan.source.value if plan.source is not None else "none",
            blocks=len(plan.chain),
            decision=decision,
        )
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def find(self, request_id: str) -> KeptDecision | None:
        """The decision of a request, while it is kept."""
        return self._kept.get(RequestId(request_id))
