"""One call to the endpoint that was chosen, up to the first bytes of its answer.

request ──as its engine gets it──> sent ──> first bytes
                                     ├── the endpoint is silent: given up              (attempts.py)
                                     ├── it refuses what only we asked for: once more  (usage_refusals.py)
                                     └── beside the leg that computes its prompt       (disaggregation/)
"""

import asyncio
from functools import partial

from backends import EndpointConfig, FirstByteTimeout, IdleTimeout, UpstreamRequest
from gateway.disaggregation import for_decode
from gateway.edge.upstream import Outgoing, upstream_headers
from gateway.engine_bodies import body_for
from gateway.exchange import Exchange, FirstBytes
from gateway.pipeline_parts import Parts, PipelineOptions
from gateway.ranks import rank_headers
from gateway.scheduling import Decision
from gateway.types import Headers
from gateway.usage_refusals import UsageRefusals


class EngineCalls:
    """One per process."""

    def __init__(self, parts: Parts, options: PipelineOptions) -> None:
        self._parts = parts
        self._options = options
        self._refusals = UsageRefusals()

    async def first_bytes(self, exchange: Exchange, decision: Decision) -> FirstBytes:
        """Send a request whose attempt has begun; the answer once its first bytes are here.

        Raises `UpstreamError` where none came, `PrefillFailed` where the leg beside it failed, and `BadRequest` for a
        body that cannot be spliced.
        """
        splitter, split = self._parts.splitter, None if decision.split is None else exchange.split
        exchange.outgoing = out = await self._outgoing(exchange)
        headers = _headers(exchange, decision)
        if split is not None:
            out = await for_decode(out, split)
            if splitter is not None and split.handover.is_concurrent:
                return await splitter.beside(exchange, split, partial(self._sent, exchange, out, headers))
        response, chunk = await self._sent(exchange, out, headers)
        if (
            split is None
            and self._refusals.learns(exchange.request, decision.endpoint_id, exchange.holder, response.status, chunk)
            and not self._options.one_call
        ):
            response.abort()
            exchange.outgoing = out = await self._outgoing(exchange)
            return await self._sent(exchange, out, headers)
        return response, chunk

    async def _outgoing(self, exchange: Exchange) -> Outgoing:
        parts, request, endpoint_id = self._parts, exchange.request, exchange.endpoint_id
        return await body_for(
            request,
            parts.fleet,
            endpoint_id,
            inject_salt=self._options.inject_salt,
            priority=None if parts.turns is None else parts.turns.priority_at(endpoint_id, request),
            refused=self._refusals.fields(request, endpoint_id, exchange.holder),
        )

    async def _sent(self, exchange: Exchange, out: Outgoing, headers: Headers) -> FirstBytes:
        """What the endpoint answers; given up where nobody there gets anything."""
        attempt, endpoint = exchange.under_way, self._parts.fleet.config_of(exchange.endpoint_id)
        assert attempt is not None, "it was begun when it was decided"
        upstream = UpstreamRequest("POST", out.path, headers, out.body)
        return await attempt.unless_silent(self._first_bytes(exchange, endpoint, upstream))

    async def _first_bytes(self, exchange: Exchange, endpoint: EndpointConfig, upstream: UpstreamRequest) -> FirstBytes:
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


def _headers(exchange: Exchange, decision: Decision) -> Headers:
    headers = (*upstream_headers(exchange.request), *rank_headers(decision.chosen.rank))
    return headers if exchange.trace is None else exchange.trace.attempt(headers)
