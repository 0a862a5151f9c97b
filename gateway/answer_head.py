"""The head of an answer: the engine's fields, and ours in place of any of the same name."""

from typing import Final

from gateway.exchange import Exchange
from gateway.scheduling import Decision, terms_of
from gateway.timing import TimingHeader
from gateway.types import Arm, Headers, InferenceRequest

_ASKS: Final = (b"x-prefixgate-explain", b"1")


def is_event_stream(headers: Headers) -> bool:
    """Whether an answer comes as server-sent events."""
    return any(name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers)


def answer_headers(exchange: Exchange, upstream: Headers, streaming: bool, timing: TimingHeader) -> Headers:
    """The engine's headers with ours in place of any of the same name. A stream's length is not known any more."""
    decision = exchange.decision
    assert decision is not None
    ours = [*_always(exchange, decision), *_sometimes(exchange, decision, timing)]
    if streaming:
        ours += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    translated = exchange.is_translated
    replaced = {name for name, _ in ours} | {b"date"}
    if streaming or translated:
        replaced |= {b"content-length"}
    if translated:
        replaced |= {b"content-encoding"}
    if exchange.outlet is not None and exchange.outlet.content_type is not None:
        replaced |= {b"content-type"}
        ours.append((b"content-type", exchange.outlet.content_type))
    return (*(field for field in upstream if field[0] not in replaced), *ours)


def _always(exchange: Exchange, decision: Decision) -> Headers:
    source = exchange.plan.source
    return (
        (b"x-request-id", exchange.request.id.encode()),
        (b"x-prefixgate-endpoint", decision.endpoint_id.encode()),
        (b"x-prefixgate-reason", decision.reason.value.encode()),
        (b"x-prefixgate-tokens", b"none" if source is None else source.value.encode()),
    )


def _sometimes(exchange: Exchange, decision: Decision, timing: TimingHeader) -> Headers:
    request, ours = exchange.request, [*_rank(decision), *_model(exchange.request)]
    if exchange.split is not None:
        ours.append((b"x-prefixgate-prefill-endpoint", exchange.split.endpoint_id.encode()))
    if exchange.held is not None:
        ours += exchange.held.headers
    if request.fixes is not None and request.fixes.arm is Arm.FIXED:
        ours.append((b"x-prefixgate-fixes", request.fixes.names.encode()))
    if exchange.carried is not None:
        ours.append((b"x-prefixgate-continued", b"%d" % exchange.carried.number))
    expected = exchange.expected_cached_tokens
    if expected is not None:
        ours.append((b"x-prefixgate-cached-tokens", b"%d" % expected))
    if _ASKS in request.headers:
        ours.append((b"x-prefixgate-decision", _prediction(decision)))
    timed = timing.value(request.headers, request.started_s, request.marks)
    if timed is not None:
        ours.append((b"x-prefixgate-timing", timed))
    return tuple(ours)


def _rank(decision: Decision) -> Headers:
    """Which of an endpoint's data-parallel ranks it was sent to, where one was chosen."""
    rank = decision.chosen.rank
    return () if rank is None else ((b"x-prefixgate-rank", b"%d" % rank),)


def _model(request: InferenceRequest) -> Headers:
    """Which model answers, and by what rule, where the client's name is not that of the model, or has several."""
    if request.routed is None or request.routed.rule is None:
        return ()
    return (
        (b"x-prefixgate-model", request.model.encode()),
        (b"x-prefixgate-route-rule", request.routed.rule.encode()),
    )


def _prediction(decision: Decision) -> bytes:
    """When the first token was thought to come, for a tenant: seconds of waiting and of prefill at the chosen endpoint.

    Of the fleet no more than that, and to a hundredth of a second: the time to the first token tells a tenant as much.
    Who else could have been chosen, and how full the caches are, is for the operator (`/admin/requests`).
    """
    if decision.split is not None:
        seen = terms_of(decision.split.prefill, decision.demand)
        return b"wait=%.2f prefill=%.2f transfer=%.2f" % (
            *(seen.wait_s, seen.prefill_s),
            decision.split.terms.transfer_s,
        )
    terms = terms_of(decision.chosen, decision.demand)
    return b"wait=%.2f prefill=%.2f" % (terms.wait_s, terms.prefill_s)
