"""What came of a decision, once the request is settled: kept beside it, and counted.

reported cached tokens, time of the first token ──> hindsight ──> decision log
                                                            `──> regret, error of the predicted TTFT
"""

from billing import Settlement, UsageFlag
from gateway.decision_log import DecisionLog, Missed, Outcome
from gateway.exchange import Exchange
from gateway.scheduling import Evidence, hindsight, with_costs
from gateway.telemetry import Telemetry


class Outcomes:
    """Plain calls, no I/O. O(candidates) for each request."""

    def __init__(self, decisions: DecisionLog, telemetry: Telemetry) -> None:
        self._decisions = decisions
        self._telemetry = telemetry

    def settled(self, exchange: Exchange, settlement: Settlement) -> Outcome | None:
        """A request has ended, however: once for each. None where nobody was chosen."""
        if exchange.decision is None:
            return None
        decision = with_costs(exchange.decision)
        evidence = Evidence(_reported_tokens(exchange, settlement), exchange.ttft_s)
        found = hindsight(decision, evidence) if exchange.computed and decision.split is None else None
        missed = Missed(settlement.miss_reason, settlement.changed_segment, settlement.lost_tokens)
        outcome = Outcome(settlement.state.value, evidence, found, missed)
        self._decisions.settle(exchange.request.id, decision, outcome)
        if found is not None:
            self._telemetry.decision_regret_s.observe(found.regret_s, exchange.trace_id)
            if evidence.ttft_s is not None:
                error_s = found.predicted_ttft_s - evidence.ttft_s
                self._telemetry.ttft_prediction_error_s("too_short" if error_s < 0 else "too_long").observe(
                    abs(error_s)
                )
        return outcome


def _reported_tokens(exchange: Exchange, settlement: Settlement) -> int | None:
    """The engine's word; None where it gave none, or where its tokens are not those that the decision was about."""
    if exchange.plan.prompt_tokens is None or UsageFlag.ESTIMATED in settlement.flags or settlement.usage is None:
        return None
    return settlement.usage.cached_tokens
