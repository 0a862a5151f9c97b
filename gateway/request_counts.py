"""A request that is over, in metrics: how it ended, what it was, how long it took, which tokens it had."""

from billing import Settlement, UsageFlag
from gateway.disaggregation import prompt_at
from gateway.exchange import Exchange
from gateway.telemetry import Telemetry
from gateway.types import Reason


def count_request(telemetry: Telemetry, exchange: Exchange, settlement: Settlement) -> None:
    """Count it: once for each. What was estimated is not among the tokens."""
    route, source = exchange.request.route_path, exchange.plan.source
    telemetry.requests(route, settlement.state.value).inc()
    telemetry.reasons(reason_of(exchange).value).inc()
    telemetry.prompts(source.value if source is not None else "none").inc()
    if settlement.duration_s is not None:
        telemetry.duration_s(route).observe(settlement.duration_s, exchange.trace_id)
    if settlement.endpoint_id is not None and UsageFlag.ESTIMATED not in settlement.flags:
        _count_tokens(telemetry, exchange, settlement, settlement.endpoint_id)


def reason_of(exchange: Exchange) -> Reason:
    """Why its request went where it went."""
    return Reason.NO_DECISION if exchange.decision is None else exchange.decision.reason


def _count_tokens(telemetry: Telemetry, exchange: Exchange, settlement: Settlement, endpoint_id: str) -> None:
    usage = settlement.usage
    if usage is None:
        return
    prompt_id = prompt_at(exchange, settlement)
    for kind, tokens in (
        ("prompt", usage.prompt_tokens),
        ("prompt_reported", usage.prompt_tokens if usage.cached_tokens is not None else None),
        ("cached", usage.cached_tokens),
        ("cached_expected", settlement.expected_cached_tokens),
        ("output", usage.output_tokens),
    ):
        if tokens is not None:
            telemetry.tokens(endpoint_id if kind == "output" else prompt_id, kind).inc(tokens)
    if usage.cached_tokens is None:
        telemetry.unreported(prompt_id).inc()
