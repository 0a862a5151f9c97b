"""Rows of the dashboard, out of what the gateway's own parts say. No text of a prompt, no address, no key."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.decision_log import KeptDecision
from gateway.perf_book import PerfBook
from gateway.scheduling import Shortened
from gateway.scheduling.cost import terms_of
from gateway.scheduling.explain import REASON_WORDS

_AGE_STEP_S: Final = 5.0
"""Ages are told in steps, or each second would have news of every endpoint."""
_KEPT: Final = (
    "id",
    "healthy",
    "draining",
    "engine",
    "version",
    "kv_use",
    "running_requests",
    "waiting_requests",
    "in_flight_requests",
    "in_flight_uncached_tokens",
)
"""As `/admin/endpoints` has them."""


def endpoint_row(row: Mapping[str, Any], models: list[str], generation: int, perf: PerfBook) -> dict[str, Any]:
    """An endpoint as the dashboard shows it, given its row of `/admin/endpoints`."""
    standing = row["standing"]
    return {
        **{name: row[name] for name in _KEPT},
        "models": models,
        "generation": generation,
        "role": row.get("role"),
        "sources": list(row.get("sources", ())),
        "gpu_cost_per_hour": row.get("gpu_cost_per_hour"),
        "state": standing["state"],
        "why": row["why"] or standing["why"],
        "since": standing["since"],
        "breaker_opened": standing["breaker_opened"],
        "speed": speed_row(perf, row["id"]),
    }


def speed_row(perf: PerfBook, place: str) -> dict[str, Any] | None:
    """The fitted speed of an endpoint; None where nothing was measured there."""
    fitted = perf.fitted(place)
    if fitted is None:
        return None
    return {**fitted.as_json(), "age_s": fitted.age_s // _AGE_STEP_S * _AGE_STEP_S}


def decision_row(kept: KeptDecision) -> dict[str, Any]:
    """A decision in a row, with the terms of the chosen endpoint. O(1)."""
    decision = kept.made
    left_out = kept.decision.left_out if isinstance(kept.decision, Shortened) else 0
    terms = terms_of(decision.chosen, decision.demand)
    return {
        "request_id": kept.request_id,
        "opened_at": kept.opened_at.isoformat(),
        "tenant": kept.tenant_id,
        "model": kept.model,
        "endpoint": decision.endpoint_id,
        "rank": decision.chosen.rank,
        "reason": decision.reason.value,
        "why": REASON_WORDS[decision.reason],
        "prompt_tokens": kept.prompt_tokens,
        "expected_cached_tokens": decision.expected_cached_tokens,
        "uncached_tokens": decision.uncached_tokens,
        "candidates": len(decision.candidates) + left_out,
        "cost_s": terms.cost_s,
        "terms": {name: getattr(terms, name) for name in terms.__struct_fields__},
        **_outcome(kept),
    }


_OUTCOME: Final = (
    *("state", "reported_cached_tokens", "ttft_s", "predicted_ttft_s", "regret_s"),
    *("miss_reason", "changed_segment", "lost_tokens"),
)


def _outcome(kept: KeptDecision) -> dict[str, Any]:
    if kept.outcome is None:
        return dict.fromkeys(_OUTCOME)
    found = kept.outcome.as_json()
    return {name: found[name] for name in _OUTCOME}
