"""The decision as a gateway in front gets it, and the engine's answer as it shows it: a data plane of another.

    request --offered addresses--> narrowed to their endpoints --> pipeline --decision--> noted --send--> Stream.pick
                                                                       ^                                      |
             the same answer, for the endpoint that gave it            '-- ServedElsewhere <-- served != first'

A request is picked once. A gateway that retries has further addresses (`epp.fallbacks`), of endpoints that take the
same bytes; where one of these has answered, the pipeline is told that the first failed, and decides for that one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from backends import (
    Deadlines,
    DialFailed,
    DialReason,
    EndpointConfig,
    Engines,
    FirstByteTimeout,
    NoEndpoint,
    ServedElsewhere,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
)
from backends.target import target_of
from gateway.epp.addresses import Addresses
from gateway.epp.fields import request_changes
from gateway.epp.stream import CURRENT, Stream
from gateway.epp.types import VIA_UPSTREAM, Picked
from gateway.epp_config import Epp
from gateway.epp_metrics import EppMetrics
from gateway.errors import Unavailable, UpstreamFailed
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER
from gateway.model_routes import Serves
from gateway.pipeline_parts import PipelineOptions
from gateway.scheduling import Chooser, Decision, Question
from gateway.types import InferenceRequest, Routed
from gateway.wire import ClientStream

UNSEEN: Final = "the gateway in front does not show answers (response_body_mode: NONE), so requests are not billed"

_OWN_ERROR: Final = 500


class EnvoyPlane:
    """One per process; `engines`, `options` and `serving` are called once, by the composition root."""

    def __init__(self, settings: Epp, connect_s: float, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._connect_s = connect_s
        self._addresses = Addresses(clock)
        self._own: Engines | None = None
        self._fleet: Fleet | None = None
        self._choose: Chooser | None = None
        self._pipeline: Serves | None = None
        self._metrics: EppMetrics | None = None
        self._is_unseen = False

    def counts_with(self, metrics: EppMetrics) -> None:
        """Where to count."""
        self._metrics = metrics

    # What the composition root asks.

    def engines(self, own: Engines, fleet: Fleet) -> Engines:
        """This, for requests of the gateway in front; `own` for those of our own port."""
        self._own, self._fleet = own, fleet
        return self

    def options(self, options: PipelineOptions) -> PipelineOptions:
        """Each request is sent once: nothing goes on elsewhere, but within the gateway in front."""
        self._choose = options.choose
        return replace(options, choose=self.choose, one_call=True, continuations=0)

    def serving(self, pipeline: Serves) -> Serves:
        """The pipeline, for what is offered."""
        self._pipeline = pipeline
        return self

    def trouble(self) -> str | None:
        """Whether answers are not shown."""
        return UNSEEN if self._is_unseen else None

    # What the pipeline asks.

    async def serve(self, request: InferenceRequest, client: ClientStream) -> None:
        """As `Serves`: among the endpoints that are offered. Raises `NoEndpoint` where none of them is ours."""
        assert self._pipeline is not None, "composed"
        stream = CURRENT.get()
        if stream is not None:
            if stream.is_unseen and self._settings.unseen_answers == "refuse":
                raise Unavailable(f"{UNSEEN}, and epp.unseen_answers refuses them")
            if stream.is_unseen:  # what only we asked for could not be taken out of its answer
                request = replace(request, client_wants_usage=True)
            if stream.context.offered is not None:
                request = await self._narrowed(request, stream.context.offered)
        await self._pipeline.serve(request, client)

    def choose(self, asked: Question) -> Decision:
        """As a `Chooser`: as configured, or the endpoint that has answered already."""
        assert self._choose is not None, "composed"
        stream = CURRENT.get()
        if stream is None:
            return self._choose(asked)
        if stream.forced is not None:
            kept = [one for one in asked.candidates if one.endpoint_id == stream.forced]
            if not kept:
                raise NoEndpoint("the request", [stream.forced])
            asked = msgspec.structs.replace(asked, candidates=kept)
        decision = self._choose(asked)
        stream.fallbacks = self._behind(decision)
        stream.ours = (
            (b"x-prefixgate-endpoint", decision.endpoint_id.encode()),
            (b"x-prefixgate-reason", decision.reason.value.encode()),
            *(((b"x-prefixgate-unbilled", b"1"),) if stream.is_unseen else ()),
        )
        return decision

    async def send(
        self,
        endpoint: EndpointConfig,
        request: UpstreamRequest,
        deadlines: Deadlines,
        begins: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """As `Engines`. Raises `ServedElsewhere` where a fallback has answered, and `UpstreamFailed` for a second call,
        which nobody can make."""
        stream = CURRENT.get()
        if stream is None:
            assert self._own is not None, "composed"
            return await self._own.send(endpoint, request, deadlines, begins)
        response = UpstreamResponse(endpoint.id, stream.line(), deadlines, 0.0)
        if stream.is_picked:
            return await _as_answered(stream, endpoint, response)
        picked = await self._picked(endpoint, request, stream)
        if begins is not None:
            begins()
        stream.pick(picked, response, deadlines)
        await response.head()
        by = await self._served_by(stream, endpoint)
        if by is not None:
            stream.forced = by
            raise ServedElsewhere(endpoint.id, by)
        if response.status >= _OWN_ERROR and stream.details not in (None, VIA_UPSTREAM):
            response.abort()
            raise _failure(endpoint, stream.details or "", deadlines)
        return response

    # Parts of these.

    async def _narrowed(self, request: InferenceRequest, offered: frozenset[str]) -> InferenceRequest:
        assert self._fleet is not None, "composed"
        ids = {one.id for one in self._fleet.snapshot() if not offered.isdisjoint(await self._known(one.id))}
        routed = request.routed or Routed(request.model or self._fleet.only_model())
        if routed.endpoints is not None:
            ids = {one for one in ids if routed.allow_endpoint(one)}
        if not ids:
            raise NoEndpoint(request.model)
        return replace(request, model=request.model or routed.asked, routed=replace(routed, endpoints=frozenset(ids)))

    async def _known(self, endpoint_id: str) -> tuple[str, ...]:
        """The addresses of an endpoint; none where they cannot be found."""
        assert self._fleet is not None, "composed"
        try:
            return await self._addresses.of(self._fleet.config_of(endpoint_id), self._connect_s)
        except DialFailed:
            return ()

    async def _picked(self, endpoint: EndpointConfig, request: UpstreamRequest, stream: Stream) -> Picked:
        assert self._fleet is not None, "composed"
        if stream.is_unseen and request.path.encode("latin-1") != stream.path:
            raise Unavailable(
                "an answer in another dialect must be translated, and the gateway in front does not show it"
            )
        first = (await self._addresses.of(endpoint, self._connect_s))[0]
        behind = [(await self._known(one))[:1] for one in stream.fallbacks]
        addresses = tuple(dict.fromkeys((first, *(address for known in behind for address in known))))
        changes = request_changes(stream.head.fields, request.headers, endpoint.api_key, addresses)
        path = f"{target_of(endpoint).base_path}{request.path}".encode("latin-1")
        ours = ((b":path", path),) if path != stream.path else ()
        length = ((b"content-length", b"%d" % len(request.body)),)
        return Picked(addresses, replace(changes, set=(*ours, *changes.set, *length)), request.body)

    def _behind(self, decision: Decision) -> tuple[str, ...]:
        """Endpoints that take the same bytes, the cheapest first. O(candidates)."""
        most = self._settings.fallbacks
        if not most or decision.split is not None or decision.chosen.rank is not None:
            return ()
        costs = decision.costs_s or [0.0] * len(decision.candidates)
        ranked = sorted(zip(costs, decision.candidates, strict=True), key=lambda pair: pair[0])
        names = dict.fromkeys(one.endpoint_id for _, one in ranked if one.endpoint_id != decision.endpoint_id)
        return tuple(name for name in names if self._takes_the_same(decision.endpoint_id, name))[:most]

    def _takes_the_same(self, chosen: str, other: str) -> bool:
        fleet = self._fleet
        assert fleet is not None, "composed"
        one, two = fleet.config_of(chosen), fleet.config_of(other)
        facts, others = fleet.facts_of(chosen), fleet.facts_of(other)
        return (
            one.api_key == two.api_key
            and target_of(one).base_path == target_of(two).base_path
            and facts is not None
            and others is not None
            and (facts.engine, facts.version, facts.routes) == (others.engine, others.version, others.routes)
            and fleet.takes_salt(chosen) == fleet.takes_salt(other)
            and fleet.refused_by(chosen) == fleet.refused_by(other)
        )

    async def _served_by(self, stream: Stream, endpoint: EndpointConfig) -> str | None:
        """The endpoint that answered in place of the one that was chosen; None where that one did, or nobody knows."""
        served = stream.served
        if served is None or served in await self._known(endpoint.id):
            return None
        for one in stream.fallbacks:
            if served in await self._known(one):
                self._elsewhere("fallback")
                return one
        self._elsewhere("unknown")
        return None

    def _elsewhere(self, by: str) -> None:
        if self._metrics is not None:
            self._metrics.served_elsewhere(by).inc()

    def unseen(self) -> None:
        """An answer will not be shown."""
        if self._metrics is not None:
            self._metrics.unbilled().inc()
        if not self._is_unseen:
            self._is_unseen = True
            LOGGER.error("requests are not billed", extra={"fields": {"why": UNSEEN}})


async def _as_answered(stream: Stream, endpoint: EndpointConfig, response: UpstreamResponse) -> UpstreamResponse:
    """The answer that has come already, for the endpoint that gave it. Raises `UpstreamFailed` for another one."""
    if stream.forced != endpoint.id:
        raise UpstreamFailed("the gateway in front sends a request once")
    stream.answer_for(response)
    await response.head()
    return response


def _failure(endpoint: EndpointConfig, details: str, deadlines: Deadlines) -> UpstreamError:
    """What an error that the gateway in front has made says of the endpoint; of most, that it is not to blame."""
    if details.startswith("upstream_reset_before_response_started"):
        return DialFailed(endpoint.id, DialReason.RESET)
    if details in ("response_timeout", "upstream_per_try_timeout"):
        return FirstByteTimeout(endpoint.id, deadlines.first_byte_s)
    return DialFailed(endpoint.id, DialReason.POOL)
