"""The last decisions with their terms and what came of them, by request id: what `/admin/requests/{id}` answers from.

    keep      at the dispatch     whole: the request under way has it too, so it costs nothing more
    settle    at the end          shortened to who mattered (`scheduling/explain.py`), with its outcome

No prompt text. At the log level debug each decision is also a line in the log.
"""

import logging
from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from gateway.log_lines import LOGGER
from gateway.scheduling import Decision, Evidence, Hindsight, Shortened, decision_as_json, is_short, shortened
from gateway.types import InferenceRequest, Plan, RequestId

MOST_KEPT = 4096
"""About 30 MB, however many endpoints there are: a settled decision keeps 18 candidates at most."""


class Missed(msgspec.Struct, frozen=True):
    """Why less was cached than could have been, as the ledger has it; all None where nothing was missed, or known."""

    reason: str | None = None
    changed_segment: str | None = None
    lost_tokens: int | None = None


class Outcome(msgspec.Struct, frozen=True):
    """How the request ended: `state` as in the ledger. `hindsight` is None where no prompt was computed."""

    state: str
    evidence: Evidence
    hindsight: Hindsight | None
    missed: Missed = Missed()

    @property
    def regret_s(self) -> float | None:
        """How much less another endpoint would have cost."""
        return None if self.hindsight is None else self.hindsight.regret_s

    def as_json(self) -> dict[str, object]:
        """Plain data, in seconds and tokens; None is unknown."""
        seen, found = self.evidence, self.hindsight
        return {
            "state": self.state,
            "reported_cached_tokens": seen.reported_cached_tokens,
            "ttft_s": seen.ttft_s,
            "predicted_ttft_s": None if found is None else found.predicted_ttft_s,
            "predicted_cost_s": None if found is None else found.predicted.cost_s,
            "cost_s": None if found is None else found.actual.cost_s,
            "least_other_cost_s": None if found is None else found.least_other_s,
            "regret_s": self.regret_s,
            "miss_reason": self.missed.reason,
            "changed_segment": self.missed.changed_segment,
            "lost_tokens": self.missed.lost_tokens,
        }


class KeptDecision(msgspec.Struct, frozen=True):
    """One decision; a request that was tried again has the last one. `outcome` is None while it is under way."""

    request_id: RequestId
    opened_at: datetime
    tenant_id: str
    model: str
    prompt_tokens: int | None
    token_source: str
    blocks: int
    decision: Decision | Shortened
    outcome: Outcome | None = None
    model_asked: str | None = None
    route_rule: str | None = None

    @property
    def made(self) -> Decision:
        """The decision, as far as it is kept."""
        return self.decision.decision if isinstance(self.decision, Shortened) else self.decision

    def as_json(self) -> dict[str, object]:
        """Plain data, terms in seconds."""
        decision = self.decision
        return {
            "request_id": self.request_id,
            "opened_at": self.opened_at.isoformat(),
            "tenant": self.tenant_id,
            "model": self.model,
            "model_asked": self.model_asked,
            "route_rule": self.route_rule,
            "prompt_tokens": self.prompt_tokens,
            "token_source": self.token_source,
            "blocks": self.blocks,
            **decision_as_json(decision if isinstance(decision, Shortened) else shortened(decision)),
            "outcome": None if self.outcome is None else self.outcome.as_json(),
        }


class DecisionLog:
    """The last `most` decisions, oldest out first."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[RequestId, KeptDecision] = {}

    def keep(self, request: InferenceRequest, plan: Plan, decision: Decision) -> None:
        """Remember a decision. O(1)."""
        kept = self._kept[request.id] = KeptDecision(
            request_id=request.id,
            opened_at=request.opened_at,
            tenant_id=request.tenant.id,
            model=request.model,
            prompt_tokens=plan.prompt_tokens,
            token_source=plan.source.value if plan.source is not None else "none",
            blocks=len(plan.chain),
            decision=decision,
            model_asked=None if request.routed is None else request.routed.asked,
            route_rule=None if request.routed is None else request.routed.rule,
        )
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        if LOGGER.isEnabledFor(logging.DEBUG):
            LOGGER.debug("decision", extra={"fields": kept.as_json()})

    def settle(self, request_id: RequestId, decision: Decision, outcome: Outcome) -> None:
        """Add how a request ended, where its decision is kept; from now on that is short. O(1), or as `shortened`."""
        kept = self._kept.get(request_id)
        if kept is not None and kept.outcome is None:
            short = decision if is_short(decision) else shortened(decision)
            self._kept[request_id] = replace(kept, decision=short, outcome=outcome)

    def latest(self) -> Iterator[KeptDecision]:
        """All that are kept, the last one made first."""
        return reversed(self._kept.values())

    def find(self, request_id: str) -> KeptDecision | None:
        """The decision of a request, while it is kept."""
        return self._kept.get(RequestId(request_id))
