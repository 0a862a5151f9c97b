"""Endpoints under `/admin/endpoints`: how each stands, draining one and warming its successor, adding and removing.

    POST ──> file ──watched by every worker──> membership ──> registry          the file is what counts
    DELETE ─┘

Only what was added here can be removed here: what another source lists would come back at its next word.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Query

from backends import EndpointFacts, EndpointId, EndpointSnapshot, Registry, UnknownEndpoint
from backends.discovery import ListingInvalid
from backends.discovery.names import name_of_url, normal_url
from gateway.discovery.files import AdminFile, entry_of
from gateway.discovery.members import ADMIN, Discovering
from gateway.fleet import Fleet
from gateway.health_report import standing_of
from gateway.perf_book import PerfBook
from gateway.prewarm import Prewarmer

_NO_FILE = "endpoints given here would be forgotten: set discovery.admin_file"


@dataclass(frozen=True, slots=True)
class EndpointParts:
    """What the pages show and change; `file` is None where nothing can be added."""

    fleet: Fleet
    registry: Registry
    discovering: Discovering
    prewarmer: Prewarmer
    file: AdminFile | None
    perf: PerfBook


def endpoint_router(parts: EndpointParts) -> APIRouter:
    """The routes; who uses them asks for a token."""
    router = APIRouter(prefix="/admin/endpoints")

    @router.get("")
    async def endpoints() -> list[dict[str, object]]:
        """The endpoints as last seen, and who lists them."""
        return [endpoint_row(parts, endpoint) for endpoint in parts.fleet.snapshot()]

    @router.post("", status_code=201, responses={409: {"description": "Nothing can be added, or the id is taken."}})
    async def add(
        entry: Annotated[dict[str, Any], Body(description="As an entry of `backends`; `url` is needed.")],
    ) -> dict[str, object]:
        """Add an endpoint, or put another in the place of one that was added under its id before. It gets requests once
        it has said what it is."""
        return await _added(parts, entry)

    @router.delete(
        "/{endpoint_id}",
        responses={404: {"description": "There is none."}, 409: {"description": "It was not added here."}},
    )
    async def remove(endpoint_id: str) -> dict[str, object]:
        """Remove an endpoint that was added: it gets no new requests, and what is under way goes on."""
        return await _removed(parts, endpoint_id)

    @router.post("/{endpoint_id}/drain")
    async def drain(
        endpoint_id: str,
        draining: bool = True,
        successor: Annotated[
            str | None, Query(description="Who is to compute the hottest prefixes held there.")
        ] = None,
    ) -> dict[str, object]:
        """Send no new requests to an endpoint (`draining=false`: send them again); those under way go on."""
        try:
            if successor is not None:
                _refuse_successor(parts, endpoint_id, successor)
            parts.registry.drain(EndpointId(endpoint_id), draining)
        except UnknownEndpoint as error:
            raise HTTPException(404, str(error)) from None
        answer: dict[str, object] = {"id": endpoint_id, "draining": draining}
        if successor is not None and draining:
            answer["successor"] = successor
            answer["prefixes"] = parts.prewarmer.hand_over(EndpointId(endpoint_id), EndpointId(successor))
        return answer

    return router


async def _added(parts: EndpointParts, entry: object) -> dict[str, object]:
    file = _file_of(parts)
    try:
        listed = entry_of(entry)
        endpoint_id = listed.id or name_of_url(listed.url)
        _refuse_other(parts, endpoint_id, listed.url)
        await asyncio.to_thread(file.put, listed)
    except ListingInvalid as invalid:
        raise HTTPException(422, str(invalid)) from None
    except OSError as error:
        raise HTTPException(503, f"{file.path.name}: {error.strerror}") from None
    await parts.discovering.hurry(ADMIN, lambda: parts.discovering.is_listed(ADMIN, listed.url))
    return {"id": parts.discovering.id_at(listed.url) or endpoint_id, "url": listed.url}


async def _removed(parts: EndpointParts, endpoint_id: str) -> dict[str, object]:
    file, report = _file_of(parts), parts.discovering.report_of(endpoint_id)
    if report is None:
        raise HTTPException(404, f"no endpoint has the id {endpoint_id}")
    if ADMIN not in report.sources:
        raise HTTPException(409, f"{endpoint_id} is listed by {', '.join(report.sources)}: remove it there")
    url = normal_url(report.url)
    try:
        await asyncio.to_thread(file.remove, lambda one: normal_url(one.url) == url)
    except (OSError, ListingInvalid) as error:
        raise HTTPException(503, f"{file.path.name} cannot be changed: {error}") from None
    await parts.discovering.hurry(ADMIN, lambda: not parts.discovering.is_listed(ADMIN, report.url))
    others = [source for source in report.sources if source != ADMIN]
    return {"id": endpoint_id, "still_listed_by": others}


def endpoint_row(parts: EndpointParts, endpoint: EndpointSnapshot) -> dict[str, object]:
    """An endpoint as this process sees it."""
    report, load, in_flight = (
        parts.discovering.report_of(endpoint.id),
        endpoint.load,
        parts.fleet.in_flight(endpoint.id),
    )
    member: dict[str, object] = {}
    if report is not None:
        traits = report.traits
        member = {
            "sources": report.sources,
            "state": report.state,
            "role": traits.role or parts.fleet.roles.of(endpoint.id).value,
            "model": traits.model,
            "gpu_cost_per_hour": traits.gpu_cost_per_hour,
        }
    return {
        "id": endpoint.id,
        "healthy": endpoint.healthy,
        "why": endpoint.unhealthy_reason,
        "standing": standing_of(endpoint),
        "draining": endpoint.draining,
        **member,
        "url": parts.fleet.config_of(endpoint.id).url,
        "holder": parts.fleet.holder_of(endpoint.id),
        **_said(endpoint.facts),
        "running_requests": load.running if load else None,
        "waiting_requests": load.waiting if load else None,
        "kv_use": load.kv_use if load else None,
        "in_flight_requests": in_flight.requests,
        "in_flight_uncached_tokens": in_flight.uncached_tokens,
        "speed": fitted.as_json() if (fitted := parts.perf.fitted(endpoint.id)) is not None else None,
    }


def _said(facts: EndpointFacts | None) -> dict[str, object]:
    """What an endpoint said of its engine, null where it was never reached."""
    if facts is None:
        return {"engine": None, "version": None, "features": None}
    features = {feature.name.lower(): fact.standing.value for feature, fact in facts.features.items()}
    return {"engine": facts.engine, "version": facts.version, "features": features}


def _file_of(parts: EndpointParts) -> AdminFile:
    if parts.file is None:
        raise HTTPException(409, _NO_FILE)
    return parts.file


def _refuse_other(parts: EndpointParts, endpoint_id: str, url: str) -> None:
    """An id that another source gave to another address is taken, and a full fleet is full."""
    report = parts.discovering.report_of(endpoint_id)
    is_there = report is not None and normal_url(report.url) == normal_url(url)
    if report is not None and not is_there and ADMIN not in report.sources and report.state != "leaving":
        raise HTTPException(409, f"{endpoint_id} is listed by {', '.join(report.sources)}, at another address")
    if report is None and parts.discovering.is_full and parts.discovering.id_at(url) is None:
        raise HTTPException(409, "there are as many endpoints as discovery.max_endpoints allows")


def _refuse_successor(parts: EndpointParts, endpoint_id: str, successor: str) -> None:
    """Raises `UnknownEndpoint` for ids that are none."""
    parts.registry.config_of(EndpointId(endpoint_id))
    parts.registry.config_of(EndpointId(successor))
    heir = parts.fleet.seen(successor)
    if successor == endpoint_id or heir.draining or not heir.healthy:
        raise HTTPException(409, f"{successor} takes no requests itself")
