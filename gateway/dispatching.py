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
from gateway.decision_log import DecisionLog
from gateway.edge.upstream import Outgoing, outgoing, upstream_headers
from gateway.errors import Unavailable
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.limits import Limits
from gateway.next_turn import NextTurns
from gateway.perf_book import PerfBook
from gateway.planning import Planner
from gateway.prewarm import Prewarmer
from gateway.ranks import rank_headers
from gateway.receipts import Receipts
from gateway.response_owners import ResponseOwners
from gateway.scheduling import Chooser, Decision, Demand, Filtered, Question, behind
from gateway.settling import Settler
from gateway.telemetry import Telemetry
from gateway.timing import NO_TIMING, TimingHeader
from gateway.tracing import Tracer
from gateway.turns import Turns, told_priority
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
    clocks: Clocks
    rng: random.Random
    tracer: Tracer | None = None
    turns: Turns | None = None
    """Whose turn it is while endpoints are full; None where none has a bound."""


class Dispatcher:
    """Finds the endpoint that answers a request. One per process; keeps no state of its own."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._options = options

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
            decision = self._decide(exchange, frozenset(failed))
            others_left = _has_others(decision) or Filtered.FULL in decision.filtered.values()
            try:
                response, first_chunk = await self._attempt(exchange, decision)
            except UpstreamError as error:
                parts.fleet.failed(decision.endpoint_id, error)
                self._attempt_failed(exchange, decision, type(error).__name__)
                if not others_left:
                    raise
            else:
                again = others_left and response.status in RETRYABLE_STATUS
                given = None if again else given_up(exchange.request, response.status, first_chunk)
                if not again and given is None:
                    return response, first_chunk
                await response.aclose()
                self._attempt_failed(exchange, decision, f"status_{response.status}")
                if given is not None:
                    raise given
            failed.add(decision.endpoint_id)
            if parts.turns is not None and parts.turns.are_crowded():
                await parts.turns.come_again(exchange, frozenset(failed))

    async def _attempt(self, exchange: Exchange, decision: Decision) -> tuple[UpstreamResponse, bytes]:
        parts, request = self._parts, exchange.request
        output_tokens, rank = request.max_output_tokens or DEFAULT_OUTPUT_TOKENS, decision.chosen.rank
        exchange.seat = parts.fleet.reserve(decision.endpoint_id, decision.queue_tokens, output_tokens, rank)
        exchange.end_turn()
        exchange.decision = decision
        parts.decisions.keep(request, exchange.plan, decision)
        exchange.attempt_begins(parts.clocks.wall())
        exchange.sent = parts.fleet.sent(decision.endpoint_id, exchange.plan, exchange.match, exchange.matched_s, rank)
        exchange.holder = parts.fleet.holder_of(decision.endpoint_id)
        exchange.seat.take(exchange.sent.holder, exchange.plan.chain)
        parts.receipts.dispatched(exchange.sent, decision.work_tokens, decision.queue_tokens)
        parts.telemetry.decisions(decision.endpoint_id, decision.reason.value).inc()
        parts.telemetry.copies.note(decision.copy_cost_s, decision.copy_saved_s)
        if decision.observed is not None:
            parts.telemetry.observed_decisions("same" if decision.agrees else "other").inc()
        exchange.dispatched_s = parts.clocks.monotonic()
        exchange.prefill = parts.perf.dispatched(decision, streams=request.stream)
        parts.telemetry.overhead_s.observe(exchange.dispatched_s - request.started_s - exchange.queued_s)
        endpoint = parts.fleet.config_of(decision.endpoint_id)
        salted = self._options.inject_salt and parts.fleet.takes_salt(decision.endpoint_id)
        natively = parts.fleet.speaks(decision.endpoint_id, request)
        exchange.outgoing = out = await _outgoing(exchange, parts.turns, natively=natively, inject_salt=salted)
        headers = (*upstream_headers(request), *rank_headers(rank))
        if exchange.trace is not None:
            headers = exchange.trace.attempt(headers)
        upstream = UpstreamRequest("POST", out.path, headers, out.body)
        marks, monotonic = request.marks, parts.clocks.monotonic
        marks.sent_s = monotonic()
        deadlines = self._options.deadlines
        response = await parts.client.send(endpoint, upstream, deadlines)
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
            if set(filtered.values()) == {Filtered.NOT_SPOKEN}:
                raise spoken_by_nobody(request)
            if set(filtered.values()) == {Filtered.NO_SALT}:
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


def _has_others(decision: Decision) -> bool:
    """Whether another endpoint could have been chosen; ranks of one share its fate."""
    return any(candidate.endpoint_id != decision.endpoint_id for candidate in decision.candidates)


async def _outgoing(exchange: Exchange, turns: Turns | None, *, natively: bool, inject_salt: bool) -> Outgoing:
    """The request as the engine gets it; a long body is spliced in a thread."""
    request, told = exchange.request, told_priority(turns, exchange, natively=natively)
    make = partial(outgoing, request, natively=natively, inject_salt=inject_salt, priority=told)
    return await asyncio.to_thread(make) if len(request.body) > LOOP_SAFE_SPLICED_BYTES else make()
