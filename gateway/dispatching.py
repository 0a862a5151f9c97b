"""Steps 7 to 9 of a request up to the first bytes of its answer: decide, send, and elsewhere where that fails.

    decide ──> begin ──> call (gateway/engine_calls.py) ──first bytes──> relay (gateway/pipeline.py)
       ^                   │
       └──without it───────┘ dial error, deadline, 5xx

What a failed attempt held is given back before the next decision. Where one endpoint computes prompts for another, the
decision has two of them, and the first has done its part when the attempt begins (gateway/disaggregation/splitting.py).
"""

from typing import Final

from backends import FirstByteTimeout, NoEndpoint, ServedElsewhere, UpstreamError
from gateway.access import BUSY_STATUS, RETRYABLE_STATUS, given_up, spoken_by_nobody
from gateway.disaggregation import PrefillFailed, failed_together, may_be_anothers_fault, reinstated, ruled_out
from gateway.engine_calls import EngineCalls
from gateway.errors import Unavailable
from gateway.exchange import Exchange, FirstBytes
from gateway.fleet import Fleet
from gateway.perf_lines import Prefill
from gateway.pipeline_parts import Parts, PipelineOptions
from gateway.scheduling import Decision, Demand, Filtered, Question, behind
from gateway.seats import Seat
from gateway.split_state import Split
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, Trouble

_OVERLOADED: Final = 503
"""Says nothing of what was handed over."""


class Dispatcher:
    """Finds the endpoint that answers a request. One per process."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._choose = options.choose
        self._one_call = options.one_call
        self._calls = EngineCalls(parts, options)

    async def dispatch(self, exchange: Exchange, without: frozenset[str] = frozenset()) -> FirstBytes:
        """Steps 7 to 9 up to the first bytes of an answer, elsewhere if need be. Raises the last failure if all fail.
        None of `without` is asked.

        The head alone is no answer yet: many servers send it before the prefill, in which they may still fail.
        """
        turns, failed = self._parts.turns, set(without)
        while True:
            answer = await self._attempted(exchange, failed)
            if answer is not None:
                return answer
            if turns is not None and turns.are_crowded():
                await turns.come_again(exchange, frozenset(failed))

    async def _attempted(self, exchange: Exchange, failed: set[str]) -> FirstBytes | None:
        """The answer of one attempt; None where it failed and another may be made, without those that are in `failed`
        then. Raises the failure where none may."""
        decision, others_left = await self._prepared(exchange, failed)
        self._begin(exchange, decision, others_left=others_left)
        try:
            answer = await self._calls.first_bytes(exchange, decision)
        except PrefillFailed as error:
            self._attempt_failed(exchange, decision, "prefill_failed", error.endpoint_id)
            failed.add(error.endpoint_id)
            return None
        except UpstreamError as error:
            self._parts.fleet.failed(decision.endpoint_id, error, exchange.dispatched_s)
            if isinstance(error, FirstByteTimeout):
                failed_together(exchange, decision)
            self._attempt_failed(exchange, decision, type(error).__name__)
            if not others_left and not exchange.spared and not isinstance(error, ServedElsewhere):
                raise
            failed.add(decision.endpoint_id)
            return None
        if await self._is_taken(exchange, decision, answer, others_left=others_left):
            return answer
        failed |= ruled_out(exchange, decision)
        return None

    async def _is_taken(self, exchange: Exchange, decision: Decision, answer: FirstBytes, *, others_left: bool) -> bool:
        """Whether the client gets this answer; else it is closed, and another endpoint is asked. Raises what the client
        is told in its place."""
        (response, first_chunk), parts = answer, self._parts
        is_busy = response.status == BUSY_STATUS
        elsewhere = others_left or (not is_busy and may_be_anothers_fault(exchange, decision))
        again = elsewhere and response.status in RETRYABLE_STATUS
        given = None if again or self._one_call else given_up(exchange.request, response.status, first_chunk)
        if not again and given is None:
            parts.attempts.answers(exchange.under_way, response.status, exchange.doubted)
            if parts.splitter is not None and response.status < 400:
                parts.splitter.answered(exchange, decision)
            return True
        await response.aclose()
        if decision.split is None and not is_busy:
            exchange.doubted += ((decision.endpoint_id, exchange.dispatched_s),)
        elif not is_busy and response.status != _OVERLOADED:
            failed_together(exchange, decision)
        self._attempt_failed(exchange, decision, f"status_{response.status}")
        if given is not None:
            raise given
        return False

    async def _prepared(self, exchange: Exchange, failed: set[str]) -> tuple[Decision, bool]:
        """The decision of the next attempt, and whether there may be another after it. Where another endpoint computes
        the prompt first, it has; who could not is in `failed` then."""
        try:
            return await self._weighed(exchange, failed)
        except NoEndpoint:
            if not reinstated(exchange, failed):
                raise
        return await self._weighed(exchange, failed)

    async def _weighed(self, exchange: Exchange, failed: set[str]) -> tuple[Decision, bool]:
        splitter, decision = self._parts.splitter, self._decide(exchange, frozenset(failed))
        others_left = _has_others(decision) or Filtered.FULL in decision.filtered.values()
        others_left = others_left and not self._one_call
        if splitter is not None and splitter.is_needed:
            decision = await splitter.prepared(exchange, decision, failed)
        return decision, others_left

    def _decide(self, exchange: Exchange, failed: frozenset[str]) -> Decision:
        request, plan, parts = exchange.request, exchange.plan, self._parts
        candidates, filtered = parts.fleet.candidates(request, plan, exchange.match, failed, exchange.owner)
        if not candidates:
            why = {*filtered.values()} - {Filtered.PREFILLS}
            if why == {Filtered.NOT_SPOKEN}:
                raise spoken_by_nobody(request)
            if why == {Filtered.NO_SALT}:
                raise Unavailable("no backend of this model can keep share groups apart; its operator must see to that")
            raise NoEndpoint(request.model, sorted(failed))
        if parts.turns is not None:
            candidates = parts.turns.with_room(exchange, candidates, filtered)
        asked = Question(
            candidates,
            filtered,
            Demand(
                prompt_tokens=plan.chain.prompt_tokens,
                expected_output_tokens=request.expected_output_tokens,
                behind=behind(candidates, parts.receipts.recent_work.usual_tokens),
                wanted_again=parts.receipts.recent_work.reused_share,
            ),
            chance=parts.rng.random,
            refine=lambda candidate: parts.fleet.refined(candidate, plan, exchange.match),
            no_affinity=plan.no_affinity,
            chain=plan.chain,
        )
        return self._choose(asked)

    def _begin(self, exchange: Exchange, decision: Decision, *, others_left: bool) -> None:
        """An attempt begins: its place is taken, and all who count what is under way are told. In one step, so that the
        next decision sees it."""
        parts, request = self._parts, exchange.request
        split = None if decision.split is None else exchange.split
        exchange.seat = _seat(parts.fleet, request, decision, split)
        exchange.end_turn()
        exchange.decision = decision
        parts.decisions.keep(request, exchange.plan, decision)
        exchange.attempt_begins(parts.clocks.wall())
        exchange.holder = parts.fleet.holder_of(decision.endpoint_id)
        if split is None:
            self._expect(exchange, exchange.seat, decision)
        _count(parts.telemetry, decision)
        exchange.dispatched_s = parts.clocks.monotonic()
        exchange.prefill = _prefill(parts, request, decision)
        may_leave = others_left or request.falls_back_on(Trouble.SLOW)
        exchange.under_way = parts.attempts.begins(
            decision, exchange, request.max_output_tokens, streams=request.stream, may_leave=may_leave
        )
        elsewhere_s = exchange.queued_s + exchange.legs_s + request.marks.before_s
        parts.telemetry.overhead_s.observe(exchange.dispatched_s - request.started_s - elsewhere_s, exchange.trace_id)

    def _expect(self, exchange: Exchange, seat: Seat, decision: Decision) -> None:
        """The endpoint is about to compute the prompt: what is expected of it, for its receipt to be held against."""
        parts, plan = self._parts, exchange.plan
        exchange.sent = sent = parts.fleet.sent(
            decision.endpoint_id, plan, exchange.match, exchange.matched_s, decision.chosen.rank
        )
        seat.take(sent.holder, plan.chain)
        parts.receipts.dispatched(sent, decision.work_tokens, decision.queue_tokens)

    def _attempt_failed(self, exchange: Exchange, decision: Decision, outcome: str, culprit: str | None = None) -> None:
        """An attempt ends, by a fault of `culprit`: who should have answered, unless it is another."""
        parts = self._parts
        exchange.release()
        exchange.request.marks.attempt_failed(parts.clocks.monotonic())
        exchange.attempt_ends(parts.clocks.wall(), outcome)
        parts.settler.tell_index(exchange)
        parts.telemetry.attempts_failed(culprit or decision.endpoint_id).inc()


def _seat(fleet: Fleet, request: InferenceRequest, decision: Decision, split: Split | None) -> Seat:
    """What is reserved at who answers: with the choice of both, where the request is split."""
    seat = None if split is None else split.take_decode_seat()
    if seat is not None:
        return seat
    tokens = request.expected_output_tokens
    return fleet.reserve(decision.endpoint_id, decision.queue_tokens, tokens, decision.chosen.rank)


def _prefill(parts: Parts, request: InferenceRequest, decision: Decision) -> Prefill:
    """The prompt on its way; where its LoRA adapter is loaded first, that is what is learned from it."""
    prefill, adapters = parts.perf.dispatched(decision, streams=request.stream), parts.fleet.adapters
    if adapters is not None:
        prefill.loading = adapters.sent(request, decision.place)
    return prefill


def _count(telemetry: Telemetry, decision: Decision) -> None:
    telemetry.decisions(decision.endpoint_id, decision.reason.value).inc()
    telemetry.copies.note(decision.copy_cost_s, decision.copy_saved_s)
    if decision.observed is not None:
        telemetry.observed_decisions("same" if decision.agrees else "other").inc()


def _has_others(decision: Decision) -> bool:
    """Whether another endpoint could have been chosen; ranks of one share its fate."""
    return any(candidate.endpoint_id != decision.endpoint_id for candidate in decision.candidates)
