"""The last decisions with all their terms, by request id: what `/admin/requests/{id}` answers from. No prompt text."""

from dataclasses import asdict, dataclass
from datetime import datetime

from gateway.scheduling import Decision
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
        terms = {name: {**asdict(term), "cost_s": term.cost_s} for name, term in self.decision.terms.items()}
        return {
            "opened_at": self.opened_at.isoformat(),
            "tenant": self.tenant_id,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "token_source": self.token_source,
            "blocks": self.blocks,
            "endpoint": self.decision.endpoint_id,
            "reason": self.decision.reason.value,
            "expected_cached_tokens": self.decision.expected_cached_tokens,
            "uncached_tokens": self.decision.uncached_tokens,
            "terms": terms,
            "filtered": {name: why.value for name, why in self.decision.filtered.items()},
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
