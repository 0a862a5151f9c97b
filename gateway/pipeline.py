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
from contextlib import suppress
from dataclasses import replace
from typing import Final

from backends import EndpointSnapshot, UpstreamError, UpstreamResponse
from billing import ANSWERED, LedgerUnavailable, SettlementState
from gateway.access import allowed, must_fit
from gateway.answer_head import answer_headers, is_event_stream
from gateway.chunk_sink import chunk_sink
from gateway.continuer import Continuer
from gateway.disaggregation import received
from gateway.dispatching import Dispatcher
from gateway.edge.error_shapes import stream_error
from gateway.errors import GatewayError, Internal, NotFound, UpstreamFailed, as_gateway_error
from gateway.exchange import Exchange, FirstBytes
from gateway.log_lines import LOGGER
from gateway.pipeline_parts import Parts, PipelineOptions
from gateway.relay import StreamTee
from gateway.types import Headers, InferenceRequest, Route
from gateway.waiting import in_time
from gateway.wire import ClientStream

CLOSING_S: Final = 1.0
"""Patience with an engine that has sent the end of a stream and keeps the connection open."""


class Pipeline:
    """Serves requests. One per process; keeps no state of its own."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._options = options
        self._dispatcher = Dispatcher(parts, options)
        self._continuer: Continuer | None = None
        if options.continuations:
            self._continuer = Continuer(parts, self._dispatcher.dispatch, options.continuations)

    async def serve(self, request: InferenceRequest, client: ClientStream) -> None:
        """Answer one request. Raises `GatewayError` only while the client has not been sent anything yet."""
        parts, exchange = self._parts, await self._admitted(request)
        if parts.turns is not None and parts.turns.are_crowded():
            await parts.turns.come(exchange)
        self._open(exchange)
        try:
            await self._answer(exchange, client)
        except asyncio.CancelledError:
            self._cut(exchange)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours too must leave no row open
            await self._fail(exchange, client, as_gateway_error(error))
        finally:
            exchange.release()
            if exchange.split is not None:
                exchange.split.end()
            parts.telemetry.steps.note(request.started_s, request.marks)

    async def _admitted(self, request: InferenceRequest) -> Exchange:
        """Steps 3 to 5: it may be asked for, its prompt is looked up, and limits hold for it what it may cost."""
        parts = self._parts
        if not request.model:
            request = replace(request, model=parts.fleet.only_model())
        if parts.fleet.adapters is not None:
            request = parts.fleet.adapters.named(request)
        if not parts.ledger.healthy:  # no engine is to compute what could not be billed
            raise LedgerUnavailable("the last write failed, or too many rows wait")
        parts.limits.refuse_early(request)
        endpoints = allowed(request, parts.fleet.serving(request.model))
        owner = await self._owner_of(request, endpoints)
        plan = await parts.planner.plan(request, endpoints, parts.fleet.block_size(endpoints))
        must_fit(request, plan, endpoints)
        match = await parts.index.match(plan.chain)
        request.marks.matched_s = matched_s = parts.clocks.monotonic()
        held = await parts.limits.admit(request, plan, match)
        if held is not None:
            request.marks.admitted_s = parts.clocks.monotonic()
        trace = None if parts.tracer is None else parts.tracer.trace_of(request.headers)
        exchange = Exchange(request, plan, match, endpoints, matched_s=matched_s, owner=owner, held=held, trace=trace)
        exchange.may_go_on = self._continuer is not None
        return exchange

    def _cut(self, exchange: Exchange) -> None:
        """The client has gone, or the server stops: nothing can be awaited any more."""
        parts = self._parts
        parts.attempts.left(exchange.under_way)
        if exchange.waits and exchange.carried is None:  # after an attempt that failed: nobody is at work on it
            parts.settler.settle(exchange, SettlementState.FAILED).add_done_callback(asyncio.Future.exception)
        else:
            parts.settler.settle_cut(exchange)

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
        answer: FirstBytes | None = await self._dispatcher.dispatch(exchange)
        while answer is not None:
            response, first_chunk = answer
            async with response:
                await in_time(exchange.opened)
                answer = await self._relay(exchange, response, first_chunk, client)

    async def _relay(
        self, exchange: Exchange, response: UpstreamResponse, chunk: bytes, client: ClientStream
    ) -> FirstBytes | None:
        """Steps 9 and 10 from the first `chunk` on; what goes on with the answer, where its endpoint died in it."""
        streaming = is_event_stream(response.headers)
        exchange.answer_begins(response.status, response.headers, streaming=streaming)
        self._first_byte(exchange)
        head = answer_headers(exchange, response.headers, streaming, self._options.timing)
        passing = self._passed(exchange, response, chunk, client, head)
        if self._continuer is None:
            await passing
        elif (answer := await self._continuer.passed(exchange, passing, client)) is not None:
            return answer
        await self._end(exchange, response, client, head)
        return None

    async def _end(self, exchange: Exchange, response: UpstreamResponse, client: ClientStream, head: Headers) -> None:
        """Step 10: all of the answer is here. Its usage is made durable, and then the end that was held back goes
        out."""
        parts, outlet, tee = self._parts, exchange.outlet, exchange.tee
        assert outlet is not None, "the answer has begun"
        held = await asyncio.to_thread(outlet.held) if outlet.is_long else outlet.held()
        self._look_for_token(exchange, parts.clocks.monotonic())
        await self._keep_response(exchange)
        exchange.attempt_ends(parts.clocks.wall(), ANSWERED)
        state = exchange.final_state()
        if exchange.is_translated and isinstance(tee, StreamTee) and not (tee.complete or tee.failed):
            raise UpstreamFailed("the answer ended before it was whole")
        await self._settle(exchange, state)
        if response.status < 500:
            parts.fleet.succeeded(exchange.endpoint_id, reports_cached_tokens=exchange.reports_cached_tokens)
        if not client.started:
            await client.start(response.status, head)
        try:
            await client.end(held)
        finally:
            if state is SettlementState.COMPLETE and exchange.carried is None:
                parts.next_turns.offer(exchange)
                parts.prewarmer.keep(exchange)

    async def _passed(
        self, exchange: Exchange, response: UpstreamResponse, chunk: bytes, client: ClientStream, head: Headers
    ) -> None:
        """As `_pass_on`; an answer that breaks off is told of its endpoint."""
        try:
            await self._pass_on(exchange, response, chunk, client, head)
        except UpstreamError as death:
            self._parts.fleet.failed(exchange.endpoint_id, death, exchange.dispatched_s)
            raise

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
        assert exchange.seat is not None
        exchange.seat.first_token()
        if exchange.first_byte_s is not None:  # another endpoint goes on
            return
        exchange.first_byte_s = exchange.request.marks.opened_s = parts.clocks.monotonic()
        ttft_s = exchange.first_byte_s - exchange.request.started_s
        parts.telemetry.ttft_s(exchange.endpoint_id).observe(ttft_s, exchange.trace_id)

    def _look_for_token(self, exchange: Exchange, now_s: float) -> None:
        """Once the answer shows a token, and not before, its prompt is known to be computed: an answer may be an error
        under any status, or a comment that keeps the connection alive."""
        tee, sent = exchange.tee, exchange.sent
        if not exchange.computed and tee is not None and tee.began and (exchange.http_status or 0) < 400:
            exchange.computed = True
            if sent is not None:
                self._parts.receipts.first_token(sent)
            elif exchange.split is not None:
                received(exchange, exchange.split, self._parts.fleet, now_s)
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


async def _closing_chunk(response: UpstreamResponse, within_s: float) -> bytes:
    """The next bytes of a stream that has said that it is done: an engine that does not close in time, or not properly,
    changes nothing any more."""
    try:
        return await response.read_chunk(max(within_s, 0.001))
    except UpstreamError:
        return b""
