"""One request, ten steps, in order (docs/architecture.md has the picture).

    1-4  edge and planner: bytes -> request -> token ids -> chain
    5-7  index.match, fleet snapshot, decide                 <-- back here without an endpoint that failed
    8    ledger row opened, while the upstream call runs; prompt observed, load reserved
    9    client and relay: bytes through                      no way back after the first byte
    10   settle: usage durable, then the end goes out; receipt to the index, load given back

However a request ends, step 10 happens once. When the client leaves or the server stops, every later await would be
cancelled too: then the exchange is put on a queue, and the settler, which outlives requests, finishes it.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from backends import (
    Deadlines,
    EndpointSnapshot,
    FirstByteTimeout,
    IdleTimeout,
    NoEndpoint,
    UpstreamClient,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
)
from billing import Ledger, LedgerUnavailable, SettlementState
from gateway.access import allowed, spoken_by_nobody
from gateway.answer_head import answer_headers, is_event_stream
from gateway.chunk_sink import chunk_sink
from gateway.decision_log import DecisionLog
from gateway.edge.error_shapes import stream_error
from gateway.edge.upstream import Outgoing, outgoing, upstream_headers
from gateway.errors import GatewayError, Internal, NotFound, Unavailable, UpstreamFailed, as_gateway_error
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.limits import Limits
from gateway.log_lines import LOGGER
from gateway.next_turn import NextTurns
from gateway.perf_book import PerfBook
from gateway.planning import Planner
from gateway.prewarm import Prewarmer
from gateway.receipts import Receipts
from gateway.relay import StreamTee
from gateway.response_owners import ResponseOwners
from gateway.scheduling import Chooser, Decision, Demand, Filtered, Question, behind
from gateway.settling import Settler
from gateway.telemetry import Telemetry
from gateway.timing import NO_TIMING, TimingHeader
from gateway.tracing import Tracer
from gateway.turns import Turns, told_priority
from gateway.types import Headers, InferenceRequest, Route
from gateway.waiting import in_time
from gateway.wire import ClientStream
from prefix_index import SharedIndex

DEFAULT_OUTPUT_TOKENS: Final = 256
"""Expected length of an answer whose request sets no limit."""
CLOSING_S: Final = 1.0
"""Patience with an engine that has sent the end of a stream and keeps the connection open."""
LOOP_SAFE_SPLICED_BYTES: Final = 512 * 1024
"""A body that may be spliced on the event loop: under 2 ms."""
RETRYABLE_STATUS: Final = frozenset({500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the configuration fixes for every request."""

    deadlines: Deadlines
    choose: Chooser
    inject_salt: bool
    chain_tokens: int | None = None
    """The ledger keeps a hash for each so many tokens of a prompt; None: of no prompt."""
    timing: TimingHeader = NO_TIMING


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


class Pipeline:
    """Serves requests. One per process; keeps no state of its own."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._options = options

    async def serve(self, request: InferenceRequest, client: ClientStream) -> None:
        """Answer one request. Raises `GatewayError` only while the client has not been sent anything yet."""
        parts = self._parts
        if not request.model:
            request = replace(request, model=parts.fleet.only_model())
        if not parts.ledger.healthy:  # no engine is to compute what could not be billed
            raise LedgerUnavailable("the last write failed, or too many rows wait")
        parts.limits.refuse_early(request)
        endpoints = allowed(request, parts.fleet.serving(request.model))
        owner = await self._owner_of(request, endpoints)
        plan = await parts.planner.plan(request, endpoints, parts.fleet.block_size(endpoints))
        match = await parts.index.match(plan.chain)
        request.marks.matched_s = matched_s = parts.clocks.monotonic()
        held = await parts.limits.admit(request, plan, match)
        if held is not None:
            request.marks.admitted_s = parts.clocks.monotonic()
        trace = None if parts.tracer is None else parts.tracer.trace_of(request.headers)
        exchange = Exchange(request, plan, match, endpoints, matched_s=matched_s, owner=owner, held=held, trace=trace)
        if parts.turns is not None and parts.turns.are_crowded():
            await parts.turns.come(exchange)
        self._open(exchange)
        try:
            await self._answer(exchange, client)
        except asyncio.CancelledError:
            if exchange.waits:  # once more, after an attempt that failed: nobody is at work on it
                parts.settler.settle(exchange, SettlementState.FAILED).add_done_callback(asyncio.Future.exception)
            else:
                parts.settler.settle_cut(exchange)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours too must leave no row open
            await self._fail(exchange, client, as_gateway_error(error))
        finally:
            exchange.release()
            parts.telemetry.steps.note(request.started_s, request.marks)

    def _open(self, exchange: Exchange) -> None:
        """Tell the ledger of a request; where that fails, nothing stays held for it."""
        try:
            exchange.opened = self._parts.ledger.open(exchange.opening(self._options.chain_tokens))
        except BaseException:
            if exchange.held is not None:
                exchange.held.give_back()
            raise

    async def _owner_of(self, request: InferenceRequest, endpoints: list[EndpointSnapshot]) -> str | None:
        """The one endpoint that may take the request, where it continues a response that is kept there."""
        previous, fleet = request.previous_response_id, self._parts.fleet
        if previous is None or not any(fleet.speaks(endpoint.id, request) for endpoint in endpoints):
            return None  # where nobody keeps responses, that is what the client is told
        holder = await self._parts.responses.holder_of(previous, request.tenant.id)
        owner = None if holder is None else fleet.endpoint_of(holder)
        if owner is None:
            raise NotFound("there is no response of that id", param="previous_response_id")
        return owner

    async def _answer(self, exchange: Exchange, client: ClientStream) -> None:
        response, first_chunk = await self._dispatch(exchange)
        async with response:
            await in_time(exchange.opened)
            await self._relay(exchange, response, first_chunk, client)

    async def _dispatch(self, exchange: Exchange) -> tuple[UpstreamResponse, bytes]:
        """Steps 7 to 9 up to the first bytes of an answer, elsewhere if need be. Raises the last failure if all fail.

        The head alone is no answer yet: many servers send it before the prefill, in which they may still fail.
        """
        parts = self._parts
        failed: set[str] = set()
        while True:
            decision = self._decide(exchange, frozenset(failed))
            others_left = len(decision.candidates) > 1 or Filtered.FULL in decision.filtered.values()
            try:
                response, first_chunk = await self._attempt(exchange, decision)
            except UpstreamError as error:
                parts.fleet.failed(decision.endpoint_id, error)
                self._attempt_failed(exchange, decision, type(error).__name__)
                if not others_left:
                    raise
            else:
                if response.status not in RETRYABLE_STATUS or not others_left:
                    return response, first_chunk
                await response.aclose()
                self._attempt_failed(exchange, decision, f"status_{response.status}")
            failed.add(decision.endpoint_id)
            if parts.turns is not None and parts.turns.are_crowded():
                await parts.turns.come_again(exchange, frozenset(failed))

    async def _attempt(self, exchange: Exchange, decision: Decision) -> tuple[UpstreamResponse, bytes]:
        parts, request = self._parts, exchange.request
        output_tokens = request.max_output_tokens or DEFAULT_OUTPUT_TOKENS
        exchange.seat = parts.fleet.reserve(decision.endpoint_id, decision.queue_tokens, output_tokens)
        exchange.end_turn()
        exchange.decision = decision
        parts.decisions.keep(request, exchange.plan, decision)
        exchange.attempt_begins(parts.clocks.wall())
        exchange.sent = parts.fleet.sent(decision.endpoint_id, exchange.plan, exchange.match, exchange.matched_s)
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
        headers = upstream_headers(request)
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

    async def _relay(self, exchange: Exchange, response: UpstreamResponse, chunk: bytes, client: ClientStream) -> None:
        """Steps 9 and 10 from the first `chunk` on."""
        parts, monotonic = self._parts, self._parts.clocks.monotonic
        streaming = is_event_stream(response.headers)
        outlet = exchange.answer_begins(response.status, response.headers, streaming=streaming)
        self._first_byte(exchange)
        head = answer_headers(exchange, response.headers, streaming, self._options.timing)
        tee = exchange.tee
        assert tee is not None
        await self._pass_on(exchange, response, chunk, client, head)
        held = await asyncio.to_thread(outlet.held) if outlet.is_long else outlet.held()
        self._look_for_token(exchange, monotonic())
        await self._keep_response(exchange)
        exchange.attempt_ends(parts.clocks.wall(), "answered")
        state = exchange.final_state()
        if exchange.is_translated and isinstance(tee, StreamTee) and not (tee.complete or tee.failed):
            raise UpstreamFailed("the answer ended before it was whole")
        await self._settle(exchange, state)
        parts.fleet.succeeded(exchange.endpoint_id, reports_cached_tokens=exchange.reports_cached_tokens)
        if not client.started:
            await client.start(response.status, head)
        try:
            await client.end(held)
        finally:
            if state is SettlementState.COMPLETE:
                parts.next_turns.offer(exchange)
                parts.prewarmer.keep(exchange)

    async def _pass_on(
        self, exchange: Exchange, response: UpstreamResponse, chunk: bytes, client: ClientStream, head: Headers
    ) -> None:
        """Every chunk to the client as it comes, less what is held back, until the engine's answer is at its end."""
        monotonic, outlet, tee = self._parts.clocks.monotonic, exchange.outlet, exchange.tee
        assert outlet is not None
        stream, closing_at_s = tee if isinstance(tee, StreamTee) else None, 0.0
        while chunk:
            passed = outlet.feed(chunk)
            here_s = monotonic()
            self._look_for_token(exchange, here_s)
            if passed:
                if not client.started:
                    await self._keep_response(exchange)
                    await client.start(response.status, head)
                await client.write(passed)
                exchange.client_waited_s += monotonic() - here_s
            if stream is not None and client.served is not None and client.started and not stream.complete:
                await response.pump(chunk_sink(exchange, stream, client.served, self._look_for_token, monotonic))
            if stream is None or not stream.complete:
                chunk = await response.read_chunk()
            else:
                closing_at_s = closing_at_s or monotonic() + CLOSING_S
                chunk = await _closing_chunk(response, closing_at_s - monotonic())

    async def _settle(self, exchange: Exchange, state: SettlementState) -> None:
        """Wait until the usage of an answer that has ended is durable."""
        settler = self._parts.settler
        cut = state is SettlementState.PARTIAL and not exchange.is_counted
        await in_time(settler.settle_cut(exchange) if cut else settler.settle(exchange, state))
        exchange.request.marks.settled_s = self._parts.clocks.monotonic()

    async def _keep_response(self, exchange: Exchange) -> None:
        """Remember whose response the engine keeps under the id that it has just named."""
        request, response_id = exchange.request, exchange.tee.response_id if exchange.tee is not None else None
        if request.route is Route.RESPONSES and not exchange.is_translated and response_id is not None:
            await self._parts.responses.remember(response_id, request.tenant.id, exchange.holder)

    def _first_byte(self, exchange: Exchange) -> None:
        parts = self._parts
        exchange.first_byte_s = exchange.request.marks.opened_s = parts.clocks.monotonic()
        assert exchange.seat is not None
        exchange.seat.first_token()
        parts.telemetry.ttft_s(exchange.endpoint_id).observe(exchange.first_byte_s - exchange.request.started_s)

    def _look_for_token(self, exchange: Exchange, now_s: float) -> None:
        """Once the answer shows a token, and not before, its prompt is known to be computed: an answer may be an error
        under any status, or a comment that keeps the connection alive."""
        tee, sent = exchange.tee, exchange.sent
        if not exchange.computed and tee is not None and tee.began and (exchange.http_status or 0) < 400:
            exchange.computed = True
            if sent is not None:
                self._parts.receipts.first_token(sent)
        if exchange.computed:
            exchange.answer_goes_on(now_s)

    async def _fail(self, exchange: Exchange, client: ClientStream, error: GatewayError) -> None:
        """An error before the first byte is raised to the edge; after it, it is told inside the stream, or by a cut."""
        exchange.attempt_ends(self._parts.clocks.wall(), error.code)
        if not client.started:
            exchange.http_status = error.status
        settler, begun = self._parts.settler, client.started
        unserved = SettlementState.REJECTED if error.status < 500 else SettlementState.FAILED
        settled = settler.settle_cut(exchange) if begun else settler.settle(exchange, unserved)
        with suppress(LedgerUnavailable):  # the request fails already
            await in_time(settled)
        if not client.started:
            raise error
        if isinstance(error, Internal):
            LOGGER.exception("request failed", extra={"fields": {"request_id": exchange.request.id}})
        if isinstance(exchange.tee, StreamTee):
            # Behind half of an event an error would be part of it.
            before = b"\n\n" if exchange.tee.inside_event and not exchange.is_translated else b""
            await client.end(before + stream_error(error, exchange.request.route))


async def _outgoing(exchange: Exchange, turns: Turns | None, *, natively: bool, inject_salt: bool) -> Outgoing:
    """The request as the engine gets it; a long body is spliced in a thread."""
    request, told = exchange.request, told_priority(turns, exchange, natively=natively)
    make = partial(outgoing, request, natively=natively, inject_salt=inject_salt, priority=told)
    return await asyncio.to_thread(make) if len(request.body) > LOOP_SAFE_SPLICED_BYTES else make()


async def _closing_chunk(response: UpstreamResponse, within_s: float) -> bytes:
    """The next bytes of a stream that has said that it is done: an engine that does not close in time, or not properly,
    changes nothing any more."""
    try:
        return await response.read_chunk(max(within_s, 0.001))
    except UpstreamError:
        return b""
