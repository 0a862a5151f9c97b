"""Steps 7 to 9 of a request up to the first bytes of its answer: decide, send, and elsewhere where that fails.

    decide ──> attempt ──first bytes──> relay (gateway/pipeline.py)
       ^          │
       └─without it─ dial error, deadline, 5xx

What a failed attempt held is given back before the next decision.
"""

import asyncio
import random
from dataclasses import dataclass
from functools import partial
from typing import Final

from backends import (
    Deadlines,
    EndpointConfig,
    FirstByteTimeout,
    IdleTimeout,
    NoEndpoint,
    UpstreamClient,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
)
from billing import Ledger
from gateway.access import RETRYABLE_STATUS, given_up, spoken_by_nobody
from gateway.attempts import Attempts
from gateway.decision_log import DecisionLog
from gateway.disaggregation.legs import for_decode
from gateway.disaggregation.splitting import (
    PrefillFailed,
    Splitter,
    may_be_anothers_fault,
    reinstated,
    ruled_out,
)
from gateway.edge.upstream import Outgoing, outgoing, upstream_headers
from gateway.errors import Unavailable
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.hourly_costs import HourlyCosts
from gateway.limits import Limits
from gateway.next_turn import NextTurns
from gateway.perf_book import PerfBook
from gateway.perf_lines import Prefill
from gateway.planning import Planner
from gateway.prewarm import Prewarmer
from gateway.ranks import rank_headers
from gateway.receipts import Receipts
from gateway.response_owners import ResponseOwners
from gateway.scheduling import Chooser, Decision, Demand, Filtered, Question, behind
from gateway.seats import Seat
from gateway.settling import Settler
from gateway.split_state import Split
from gateway.telemetry import Telemetry
from gateway.timing import NO_TIMING, TimingHeader
from gateway.tracing import Tracer
from gateway.turns import Turns, told_priority
from gateway.types import InferenceRequest, Trouble
from gateway.usage_refusals import UsageRefusals
from prefix_index import SharedIndex

DEFAULT_OUTPUT_TOKENS: Final = 256
"""Expected length of an answer whose request sets no limit."""
LOOP_SAFE_SPLICED_BYTES: Final = 512 * 1024
"""A body that may be spliced on the event loop: under 2 ms."""


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the configuration fixes for every request."""

    deadlines: Deadlines
    choose: Chooser
    inject_salt: bool
    costs: HourlyCosts
    """What endpoints cost, for those who choose."""
    chain_tokens: int | None = None
    """The ledger keeps a hash for each so many tokens of a prompt; None: of no prompt."""
    timing: TimingHeader = NO_TIMING
    continuations: int = 0
    """How often another endpoint goes on with a stream whose endpoint died."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects a pipeline works with."""

    planner: Planner
    index: SharedIndex
    fleet: Fleet
    perf: PerfBook
    receipts: Receipts
    client: UpstreamClient
    ledger: Ledger
    limits: Limits
    settler: Settler
    next_turns: NextTurns
    prewarmer: Prewarmer
    telemetry: Telemetry
    decisions: DecisionLog
    responses: ResponseOwners
    attempts: Attempts
    clocks: Clocks
    rng: random.Random
    tracer: Tracer | None = None
    turns: Turns | None = None
    """Whose turn it is while endpoints are full; None where none has a bound."""
    splitter: Splitter | None = None
    """Has prompts computed at other endpoints than those that answer; None: nobody does."""


class Dispatcher:
    """Finds the endpoint that answers a request. One per process."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._options = options
        self._refusals = UsageRefusals()

    async def dispatch(
        self, exchange: Exchange, without: frozenset[str] = frozenset()
    ) -> tuple[UpstreamResponse, bytes]:
        """Steps 7 to 9 up to the first bytes of an answer, elsewhere if need be. Raises the last failure if all fail.
        None of `without` is asked.

        The head alone is no answer yet: many servers send it before the prefill, in which they may still fail.
        """
        parts = self._parts
        failed = set(without)
        while True:
            decision, others_left = await self._prepared(exchange, failed)
            try:
                response, first_chunk = await self._attempt(exchange, decision, others_left=others_left)
            except PrefillFailed as error:
                self._attempt_failed(exchange, decision, "prefill_failed")
                failed.add(error.endpoint_id)
                continue
            except UpstreamError as error:
                parts.fleet.failed(decision.endpoint_id, error, exchange.dispatched_s)
                self._attempt_failed(exchange, decision, type(error).__name__)
                if not others_left and not exchange.spared:
                    raise
                failed.add(decision.endpoint_id)
            else:
                elsewhere = others_left or may_be_anothers_fault(exchange, decision)
                again = elsewhere and response.status in RETRYABLE_STATUS
                given = None if again else given_up(exchange.request, response.status, first_chunk)
                if not again and given is None:
                    parts.attempts.answers(exchange.under_way, response.status, exchange.doubted)
                    return response, first_chunk
                await response.aclose()
                if decision.split is None:
                    exchange.doubted.append((decision.endpoint_id, exchange.dispatched_s))
                self._attempt_failed(exchange, decision, f"status_{response.status}")
                if given is not None:
                    raise given
                failed |= ruled_out(exchange, decision)
            if parts.turns is not None and parts.turns.are_crowded():
                await parts.turns.come_again(exchange, frozenset(failed))

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
        if splitter is not None and splitter.is_needed:
            decision = await splitter.prepared(exchange, decision, failed)
        return decision, others_left

    async def _attempt(
        self, exchange: Exchange, decision: Decision, *, others_left: bool
    ) -> tuple[UpstreamResponse, bytes]:
        parts, request = self._parts, exchange.request
        rank, split = decision.chosen.rank, None if decision.split is None else exchange.split
        exchange.seat = _seat(parts.fleet, request, decision, split)
        exchange.end_turn()
        exchange.decision = decision
        parts.decisions.keep(request, exchange.plan, decision)
        exchange.attempt_begins(parts.clocks.wall())
        exchange.holder = parts.fleet.holder_of(decision.endpoint_id)
        if split is None:
            exchange.sent = sent = parts.fleet.sent(
                decision.endpoint_id, exchange.plan, exchange.match, exchange.matched_s, rank
            )
            exchange.seat.take(sent.holder, exchange.plan.chain)
            parts.receipts.dispatched(sent, decision.work_tokens, decision.queue_tokens)
        parts.telemetry.decisions(decision.endpoint_id, decision.reason.value).inc()
        parts.telemetry.copies.note(decision.copy_cost_s, decision.copy_saved_s)
        if decision.observed is not None:
            parts.telemetry.observed_decisions("same" if decision.agrees else "other").inc()
        exchange.dispatched_s = parts.clocks.monotonic()
        exchange.prefill = _prefill(parts, request, decision)
        may_leave = others_left or request.falls_back_on(Trouble.SLOW)
        exchange.under_way = parts.attempts.begins(
            decision, exchange, request.max_output_tokens, streams=request.stream, may_leave=may_leave
        )
        elsewhere_s = exchange.queued_s + exchange.legs_s + request.marks.before_s
        parts.telemetry.overhead_s.observe(exchange.dispatched_s - request.started_s - elsewhere_s)
        endpoint = parts.fleet.config_of(decision.endpoint_id)
        salted = self._options.inject_salt and parts.fleet.takes_salt(decision.endpoint_id)
        natively = parts.fleet.speaks(decision.endpoint_id, request)
        make = partial(_outgoing, exchange, parts, self._refusals, natively=natively, inject_salt=salted)
        exchange.outgoing = out = await make()
        headers = (*upstream_headers(request), *rank_headers(rank))
        if exchange.trace is not None:
            headers = exchange.trace.attempt(headers)
        if split is not None:
            out = await for_decode(out, split)
        send = partial(self._send, exchange, endpoint, UpstreamRequest("POST", out.path, headers, out.body))
        if split is not None and parts.splitter is not None and split.handover.is_concurrent:
            return await parts.splitter.beside(exchange, split, send)
        response, chunk = await send()
        if split is None and self._refusals.learns(
            request, decision.endpoint_id, exchange.holder, response.status, chunk
        ):
            response.abort()
            exchange.outgoing = out = await make()
            return await self._send(exchange, endpoint, UpstreamRequest("POST", out.path, headers, out.body))
        return response, chunk

    async def _send(
        self, exchange: Exchange, endpoint: EndpointConfig, upstream: UpstreamRequest
    ) -> tuple[UpstreamResponse, bytes]:
        """What an endpoint answers, once its first bytes are here; given up where nobody there gets any."""
        attempt = exchange.under_way
        assert attempt is not None, "it was begun when it was decided"
        attempt.listen()
        try:
            return await self._first_bytes(exchange, endpoint, upstream)
        except asyncio.CancelledError:
            if attempt.was_given_up():
                raise FirstByteTimeout(endpoint.id, attempt.silent_s) from None
            raise
        finally:
            attempt.deafen()

    async def _first_bytes(
        self, exchange: Exchange, endpoint: EndpointConfig, upstream: UpstreamRequest
    ) -> tuple[UpstreamResponse, bytes]:
        parts, marks, split = self._parts, exchange.request.marks, exchange.split
        monotonic = parts.clocks.monotonic
        marks.sent_s = monotonic()
        deadlines = self._options.deadlines
        begins = None if split is None else split.decode_leg_begins
        response = await parts.client.send(endpoint, upstream, deadlines, begins)
        marks.connected_s = marks.sent_s + response.connected_s
        try:
            chunk = await response.read_chunk(deadlines.first_byte_s)
        except IdleTimeout:
            raise FirstByteTimeout(endpoint.id, deadlines.first_byte_s) from None
        except asyncio.CancelledError:
            response.abort()
            raise
        marks.answered_s = monotonic()
        return response, chunk

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
                expected_output_tokens=request.max_output_tokens or DEFAULT_OUTPUT_TOKENS,
                behind=behind(candidates, parts.receipts.recent_work.usual_tokens),
                wanted_again=parts.receipts.recent_work.reused_share,
            ),
            chance=parts.rng.random,
            refine=lambda candidate: parts.fleet.refined(candidate, plan, exchange.match),
            no_affinity=plan.no_affinity,
            chain=plan.chain,
        )
        return self._options.choose(asked)

    def _attempt_failed(self, exchange: Exchange, decision: Decision, outcome: str) -> None:
        parts, endpoint_id = self._parts, decision.endpoint_id
        exchange.release()
        exchange.request.marks.attempt_failed(parts.clocks.monotonic())
        exchange.attempt_ends(parts.clocks.wall(), outcome)
        parts.settler.tell_index(exchange)
        parts.telemetry.attempts_failed(endpoint_id).inc()


def _seat(fleet: Fleet, request: InferenceRequest, decision: Decision, split: Split | None) -> Seat:
    """What is reserved at who answers: with the choice of both, where the request is split."""
    seat = None if split is None else split.take_decode_seat()
    if seat is not None:
        return seat
    output_tokens = request.max_output_tokens or DEFAULT_OUTPUT_TOKENS
    return fleet.reserve(decision.endpoint_id, decision.queue_tokens, output_tokens, decision.chosen.rank)


def _prefill(parts: Parts, request: InferenceRequest, decision: Decision) -> Prefill:
    """The prompt on its way; where its LoRA adapter is loaded first, that is what is learned from it."""
    prefill, adapters = parts.perf.dispatched(decision, streams=request.stream), parts.fleet.adapters
    if adapters is not None:
        prefill.loading = adapters.sent(request, decision.place)
    return prefill


def _has_others(decision: Decision) -> bool:
    """Whether another endpoint could have been chosen; ranks of one share its fate."""
    return any(candidate.endpoint_id != decision.endpoint_id for candidate in decision.candidates)


async def _outgoing(
    exchange: Exchange, parts: Parts, refusals: UsageRefusals, *, natively: bool, inject_salt: bool
) -> Outgoing:
    """The request as the engine gets it; a long body is spliced in a thread."""
    request, told = exchange.request, told_priority(parts.turns, exchange, natively=natively)
    adapters = parts.fleet.adapters
    form = None if adapters is None else adapters.form(request, exchange.endpoint_id, natively=natively)
    refuses = parts.fleet.refused_by(exchange.endpoint_id)
    refuses |= refusals.fields(request, exchange.endpoint_id, exchange.holder)
    make = partial(
        outgoing, request, natively=natively, inject_salt=inject_salt, priority=told, adapter=form, refuses=refuses
    )
    return await asyncio.to_thread(make) if len(request.body) > LOOP_SAFE_SPLICED_BYTES else make()
