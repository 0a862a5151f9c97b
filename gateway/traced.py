"""An exchange that is over, as what its spans and its metrics for a collector are made of.

None of what its client wrote goes along but the name of a model that is served here.
"""

from collections.abc import Iterator, Mapping

from billing import Attempt, Settlement, SettlementState, UsageFlag
from gateway.exchange import Exchange
from gateway.request_counts import reason_of
from gateway.scheduling import Decision, terms_of
from gateway.tracing import Inference, Trace, TracedRequest
from gateway.tracing.spans import OPERATIONS, Value, error_of, server_of


def traced(
    exchange: Exchange, settlement: Settlement, trace: Trace, now_s: float, urls: Mapping[str, str]
) -> TracedRequest:
    """What is known of a request at its end, `now_s` by the monotonic clock. `urls` are those of endpoints by id."""
    request = exchange.request
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
        of_answer=_of_answer(exchange, settlement),
        model=request.model,
        provider=_provider(exchange, settlement.endpoint_id),
    )


def inferences(exchange: Exchange, settlement: Settlement, urls: Mapping[str, str]) -> Iterator[Inference]:
    """The calls of engines that a request made, in order; the last one has its first chunk and its tokens."""
    operation = OPERATIONS.get(exchange.request.route, "POST")
    for attempt in settlement.attempts:
        server, port = server_of(urls.get(attempt.endpoint_id, ""))
        error, is_last = error_of(attempt), attempt is settlement.attempts[-1]
        yield Inference(
            operation=operation,
            provider=_provider(exchange, attempt.endpoint_id),
            model=exchange.request.model,
            server=server,
            port=port,
            error=error,
            duration_s=(attempt.ended_at - attempt.started_at).total_seconds(),
            first_chunk_s=_first_chunk_s(exchange) if is_last and error is None else None,
            tokens=_tokens(attempt, settlement if is_last else None),
        )


def _provider(exchange: Exchange, endpoint_id: str | None) -> str | None:
    return next(
        (one.facts.engine for one in exchange.endpoints if one.id == endpoint_id and one.facts is not None), None
    )


def _first_chunk_s(exchange: Exchange) -> float | None:
    """Of a stream, from its dispatch; None of whole answers, and where none came."""
    if not exchange.request.stream or exchange.first_byte_s is None:
        return None
    return exchange.first_byte_s - exchange.dispatched_s


def _tokens(attempt: Attempt, settlement: Settlement | None) -> tuple[int | None, int | None, int | None]:
    """What the engine said of a call; where several wrote one answer each has its own."""
    if attempt.prompt_tokens is not None or settlement is None:
        return attempt.prompt_tokens, attempt.output_tokens, attempt.cached_tokens
    usage = settlement.usage
    if usage is None or UsageFlag.ESTIMATED in settlement.flags:
        return None, None, None
    return usage.prompt_tokens, usage.output_tokens, usage.cached_tokens


def _of_answer(exchange: Exchange, settlement: Settlement) -> dict[str, Value | None]:
    request, usage = exchange.request, settlement.usage
    return {
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "gen_ai.response.time_to_first_chunk": _first_chunk_s(exchange),
        "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.output_tokens if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens if usage else None,
        "prefixgate.estimated": True if UsageFlag.ESTIMATED in settlement.flags else None,
    }


def _attributes(exchange: Exchange, settlement: Settlement) -> dict[str, Value | None]:
    request = exchange.request
    return {
        "prefixgate.request_id": request.id,
        "prefixgate.model_asked": None if request.routed is None else request.routed.asked,
        "prefixgate.route_rule": None if request.routed is None else request.routed.rule,
        "prefixgate.tenant": request.tenant.id,
        "prefixgate.endpoint": settlement.endpoint_id,
        "prefixgate.reason": reason_of(exchange).value,
        "prefixgate.state": settlement.state.value,
        "prefixgate.expected_cached_tokens": settlement.expected_cached_tokens,
        **(_of_decision(exchange.decision) if exchange.decision is not None else {}),
    }


def _of_decision(decision: Decision) -> dict[str, Value | None]:
    """What the decision went by: the terms of the endpoint that it chose, in seconds, less those of others."""
    terms = terms_of(decision.chosen, decision.demand)
    return {
        "prefixgate.decision.candidates": len(decision.candidates),
        "prefixgate.decision.cost_s": terms.cost_s,
        "prefixgate.decision.wait_s": terms.wait_s,
        "prefixgate.decision.prefill_s": terms.prefill_s,
        "prefixgate.decision.adapter_load_s": terms.adapter_load_s or None,
    }
