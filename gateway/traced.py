"""An exchange that is over, as what its spans are made of. None of what its client wrote goes along."""

from collections.abc import Mapping

from billing import Settlement, SettlementState, UsageFlag
from gateway.exchange import Exchange
from gateway.tracing import Trace, TracedRequest
from gateway.tracing.spans import Value
from gateway.types import Reason


def traced(
    exchange: Exchange, settlement: Settlement, trace: Trace, now_s: float, urls: Mapping[str, str]
) -> TracedRequest:
    """What is known of a request at its end, `now_s` by the monotonic clock. `urls` are those of endpoints by id."""
    request = exchange.request
    at = settlement.endpoint_id
    return TracedRequest(
        trace_id=trace.trace_id,
        parent_id=trace.parent_id,
        span_id=trace.span_id,
        attempt_ids=tuple(trace.attempt_ids),
        began_s=request.started_s,
        ended_s=now_s,
        opened_at=request.opened_at,
        steps=tuple(request.marks.steps(request.started_s)),
        attempts=tuple(settlement.attempts),
        urls=urls,
        route=request.route,
        path=request.route_path,
        status=settlement.http_status,
        failed=settlement.state is SettlementState.FAILED,
        attributes=_attributes(exchange, settlement),
        model=request.model,
        provider=next((one.facts.engine for one in exchange.endpoints if one.id == at and one.facts is not None), None),
    )


def _attributes(exchange: Exchange, settlement: Settlement) -> dict[str, Value | None]:
    request, usage, decision = exchange.request, settlement.usage, exchange.decision
    return {
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.output_tokens if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens if usage else None,
        "prefixgate.request_id": request.id,
        "prefixgate.model_asked": None if request.routed is None else request.routed.asked,
        "prefixgate.route_rule": None if request.routed is None else request.routed.rule,
        "prefixgate.tenant": request.tenant.id,
        "prefixgate.endpoint": settlement.endpoint_id,
        "prefixgate.reason": (Reason.NO_DECISION if decision is None else decision.reason).value,
        "prefixgate.state": settlement.state.value,
        "prefixgate.expected_cached_tokens": settlement.expected_cached_tokens,
        "prefixgate.estimated": True if UsageFlag.ESTIMATED in settlement.flags else None,
    }
