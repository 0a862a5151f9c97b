"""Paths beside inference that a tenant may reach: what an engine's allow-list opens for free, and kept responses.

    POST /tokenize, ...                an endpoint that opens it (of the model in the body, where there is one)
    GET | DELETE /v1/responses/{id}    the endpoint that keeps it, and only for its tenant
    POST /v1/responses/{id}/cancel     likewise
    POST /v1/messages/count_tokens     an engine that counts, else our own count

Nothing here runs a model, so nothing is metered and no ledger row is made. Everything that is not opened is shut.
"""

import asyncio
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from backends import (
    Deadlines,
    EndpointSnapshot,
    Metering,
    NoEndpoint,
    UnknownEndpoint,
    UpstreamClient,
    UpstreamError,
    UpstreamRequest,
)
from gateway.edge.control_fields import ENGINE_CONTROL_FIELDS
from gateway.edge.reading import LOOP_SAFE_PARSED_BYTES, Arrival, read_request
from gateway.edge.splice import cut_fields, set_field
from gateway.edge.upstream import engine_headers
from gateway.errors import BadRequest, Forbidden, NotFound
from gateway.fleet import Fleet
from gateway.planning import Planner
from gateway.response_owners import ResponseOwners
from gateway.served_models import serves
from gateway.surrogates import UNREADABLE, decode
from gateway.types import Route, Scopes
from gateway.wire import ClientStream

COUNT_TOKENS: Final = "/v1/messages/count_tokens"
_KEPT_RESPONSE: Final = re.compile(r"/v1/responses/([A-Za-z0-9_.-]{1,256})(/cancel|/input_items)?")
_METHODS_OF_KEPT: Final = {None: ("GET", "DELETE"), "/cancel": ("POST",), "/input_items": ("GET",)}

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder(Any)


@dataclass(frozen=True, slots=True)
class FreeRequest:
    """A request that costs nothing, with its body as it came."""

    arrival: Arrival
    method: str
    body: bytes = field(repr=False)

    @property
    def path(self) -> str:
        """Without the query."""
        return self.arrival.path.partition("?")[0]


class Passthrough:
    """Serves free paths. `metering` tells which paths there are; `serve` answers those that are free."""

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        client: UpstreamClient,
        responses: ResponseOwners,
        deadlines: Deadlines,
        served_name: Callable[[str], str] | None = None,
    ) -> None:
        """`served_name` says which model a name of a client's means, where names are configured."""
        self._fleet = fleet
        self._planner = planner
        self._client = client
        self._responses = responses
        self._deadlines = deadlines
        self._served_name = served_name

    def metering(self, method: str, path: str) -> Metering | None:
        """Who pays for a path; None where it is shut. O(endpoints)."""
        if path == COUNT_TOKENS and method == "POST":
            return Metering.FREE
        kept = _KEPT_RESPONSE.fullmatch(path)
        if kept is not None:
            return Metering.FREE if method in _METHODS_OF_KEPT[kept[2]] else None
        said = {
            endpoint.facts.open_paths.get(f"{method} {path}")
            for endpoint in self._fleet.snapshot()
            if endpoint.facts is not None
        }
        if Metering.METERED in said:  # an engine that bills a path decides for all
            return Metering.METERED
        return Metering.FREE if Metering.FREE in said else None

    async def serve(self, request: FreeRequest, client: ClientStream) -> None:
        """Answer a free request. Raises `GatewayError` or `BackendError` while nothing has been sent."""
        long = len(request.body) > LOOP_SAFE_PARSED_BYTES
        model, body = await asyncio.to_thread(_looked_into, request.body) if long else _looked_into(request.body)
        if request.path == COUNT_TOKENS:
            model = model or self._fleet.only_model()
        if model is not None:
            served = self._listed(request, model)
            if served != model:
                body, model = await asyncio.to_thread(set_field, body, "model", msgspec.json.encode(served)), served
                request = replace(request, body=body)
        takers = await self._takers(request, model)
        if takers:
            await self._relay_from_one(replace(request, body=body), takers, client)
        elif request.path == COUNT_TOKENS and model is not None:
            await self._count(request, model, client)
        else:
            raise NoEndpoint(model or request.path)

    async def _takers(self, request: FreeRequest, model: str | None) -> list[EndpointSnapshot]:
        """Endpoints that may answer, the least busy first."""
        there = [endpoint for endpoint in self._fleet.snapshot() if endpoint.facts is not None]
        alive = [endpoint for endpoint in there if endpoint.healthy or endpoint.last_resort]
        scopes = request.arrival.tenant.scopes
        if scopes is not None:
            alive = [endpoint for endpoint in alive if scopes.allow_endpoint(endpoint.id)]
        kept = _KEPT_RESPONSE.fullmatch(request.path)
        if kept is not None:
            holder = await self._responses.holder_of(kept[1], request.arrival.tenant.id)
            owner = None if holder is None else self._fleet.endpoint_of(holder)
            if owner is None:
                raise NotFound("there is no response of that id")
            return [endpoint for endpoint in alive if endpoint.id == owner]
        if model is not None:
            self._fleet.serving(model)  # raises where nobody serves it
            alive = [endpoint for endpoint in alive if serves(endpoint, model)]
        elif scopes is not None:  # an engine takes its own model then
            alive = [endpoint for endpoint in alive if _serves_only(endpoint, scopes)]
        able = [endpoint for endpoint in alive if _opens(endpoint, request)]
        return sorted(able, key=lambda one: (one.draining, not one.healthy, self._fleet.in_flight(one.id).requests))

    def _listed(self, request: FreeRequest, model: str) -> str:
        """The name under which endpoints list what a client's name means. Raises `Forbidden`."""
        self._may_use(request, model)  # a key is for names as they are written
        served = model if self._served_name is None else self._served_name(model)
        adapter = None if self._fleet.adapters is None else self._fleet.adapters.meant_by(served)
        if adapter is None or adapter == served:
            return served
        self._may_use(request, adapter)
        return adapter

    def _may_use(self, request: FreeRequest, model: str) -> None:
        """Raises `Forbidden`."""
        scopes = request.arrival.tenant.scopes
        if scopes is not None and not scopes.allow_model(model):
            raise Forbidden(f"this API key is not for the model {model[:100]!r}", param="model")

    async def _relay_from_one(self, request: FreeRequest, takers: list[EndpointSnapshot], client: ClientStream) -> None:
        """The answer of the first that gives one."""
        for endpoint in takers:
            try:
                await self._relay(request, endpoint, client)
            except UnknownEndpoint:
                continue  # it was forgotten while another was tried
            except UpstreamError as error:
                self._fleet.failed(endpoint.id, error)
                if client.started or endpoint is takers[-1]:
                    raise
            else:
                return
        raise NoEndpoint(request.path, [endpoint.id for endpoint in takers])

    async def _relay(self, request: FreeRequest, endpoint: EndpointSnapshot, client: ClientStream) -> None:
        arrival, request_id = request.arrival, (b"x-request-id", request.arrival.id.encode())
        headers = engine_headers(arrival.headers, arrival.id)
        upstream = UpstreamRequest(request.method, arrival.path, headers, request.body)
        async with await self._client.send(self._fleet.config_of(endpoint.id), upstream, self._deadlines) as response:
            ours = (request_id, (b"x-prefixgate-endpoint", endpoint.id.encode()))
            dropped = {name for name, _ in ours} | {b"date"}
            passed = (field for field in response.headers if field[0] not in dropped)
            chunk = await response.read_chunk(self._deadlines.first_byte_s)
            await client.start(response.status, (*passed, *ours))
            while chunk:
                await client.write(chunk)
                chunk = await response.read_chunk()
            await client.end()

    async def _count(self, request: FreeRequest, model: str, client: ClientStream) -> None:
        arrival = replace(request.arrival, route=Route.MESSAGES)
        asked = await asyncio.to_thread(read_request, arrival, request.body)
        endpoints = self._fleet.serving(model)
        plan = await self._planner.plan(asked, endpoints, self._fleet.block_size(endpoints))
        if plan.prompt_tokens is None:
            raise NotFound("no backend of this model counts tokens, and its prompts cannot be counted here")
        body = msgspec.json.encode({"input_tokens": plan.prompt_tokens})
        headers = (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", arrival.id.encode()),
        )
        await client.start(200, headers)
        await client.end(body)


def _serves_only(endpoint: EndpointSnapshot, scopes: Scopes) -> bool:
    """Whether what an endpoint serves, adapters apart, is all among the models of a key."""
    facts = endpoint.facts
    return facts is not None and all(scopes.allow_model(model.id) for model in facts.models if model.parent is None)


def _opens(endpoint: EndpointSnapshot, request: FreeRequest) -> bool:
    facts = endpoint.facts
    assert facts is not None
    if request.path == COUNT_TOKENS:
        return COUNT_TOKENS in facts.routes
    return f"{request.method} {request.path}" in facts.open_paths


def _looked_into(body: bytes) -> tuple[str | None, bytes]:
    """The model that a body names, and the body without fields that steer an engine. O(body).

    Raises `BadRequest` for a body that is no JSON object: what we cannot read an engine might.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body:
        return None, body
    try:
        fields = decode(_object, body)
        model = decode(_any, bytes(fields["model"])) if "model" in fields else None
        passed = cut_fields(body, ENGINE_CONTROL_FIELDS) if fields.keys() & ENGINE_CONTROL_FIELDS else body
    except UNREADABLE:
        raise BadRequest("the request body is not a JSON object in UTF-8, or is nested too deeply") from None
    return model if isinstance(model, str) else None, passed
