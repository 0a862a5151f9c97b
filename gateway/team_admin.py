"""The admin API of a gateway of several workers: whichever takes a request answers for all.

    own       any worker knows it: what is in the ledger, in Redis or in a file
    found     one of them knows it: asked one after the other
    merged    each knows a part
    told      each must do it

Each worker asks for the token itself: calls are passed on with their headers.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import msgspec

from backends import EndpointId, Registry, UnknownEndpoint
from gateway.admin import AdminParts, admin_app, token_first
from gateway.divergence.pages import LINT_PATH, lint_page
from gateway.fixes.pages import fixes_page
from gateway.log_lines import LOGGER
from gateway.model_routes import ROUTES_PATH, routes_page
from gateway.status import StatusPages
from gateway.team.catching_up import healthy_here
from gateway.team.inner_calls import answered, call_of
from gateway.team.member import Served, Team
from gateway.team.messages import Call, Reply
from gateway.team_pages import disaggregation_page, endpoints_page, index_page, parity_page
from gateway.wire import ASGIApp, Receive, Scope, Send

_OK: Final = 200
_NOT_FOUND: Final = 404
_NOTHING: Final = Reply(_NOT_FOUND, b"application/json", b'{"detail":"Not Found"}')
DRAIN: Final = "/admin/endpoints/{endpoint_id}/drain"
PRICES_RELOAD: Final = "/admin/prices/reload"


class Sharing(Enum):
    """Who answers."""

    OWN = "own"
    FOUND = "found"
    MERGED = "merged"
    TOLD = "told"


SHARING: Final = {
    ("GET", "/admin/openapi.json"): Sharing.OWN,
    ("GET", "/admin/requests/{request_id}"): Sharing.FOUND,
    ("GET", "/admin/parity"): Sharing.MERGED,
    ("GET", "/admin/endpoints"): Sharing.MERGED,
    ("POST", DRAIN): Sharing.TOLD,
    ("POST", "/admin/endpoints"): Sharing.OWN,
    ("DELETE", "/admin/endpoints/{endpoint_id}"): Sharing.OWN,
    ("GET", "/admin/disaggregation"): Sharing.MERGED,
    ("GET", "/admin/index"): Sharing.MERGED,
    ("GET", "/admin/index/top"): Sharing.OWN,
    ("GET", "/admin/index/check"): Sharing.OWN,
    ("POST", "/admin/index/clear"): Sharing.TOLD,
    ("GET", "/admin/fixes"): Sharing.MERGED,
    ("GET", LINT_PATH): Sharing.MERGED,
    ("GET", ROUTES_PATH): Sharing.MERGED,
    ("POST", ROUTES_PATH): Sharing.TOLD,
    ("GET", "/admin/templates"): Sharing.OWN,
    ("GET", "/admin/templates/{reference}"): Sharing.OWN,
    ("PUT", "/admin/templates/{reference}"): Sharing.TOLD,
    ("DELETE", "/admin/templates/{reference}"): Sharing.TOLD,
    ("GET", "/admin/prices"): Sharing.OWN,
    ("GET", "/admin/prices/effective"): Sharing.OWN,
    ("GET", "/admin/prices/apis"): Sharing.OWN,
    ("POST", "/admin/prices/check"): Sharing.OWN,
    ("POST", PRICES_RELOAD): Sharing.TOLD,
    ("GET", "/admin/cost"): Sharing.OWN,
    ("GET", "/admin/jobs"): Sharing.OWN,
    ("GET", "/admin/reports"): Sharing.OWN,
    ("GET", "/admin/reports/rows"): Sharing.OWN,
    ("GET", "/admin/verification"): Sharing.OWN,
    ("POST", "/admin/verification/credits"): Sharing.OWN,
}
"""Of each page, by method and path. A test sees to it that all are here."""

MERGES: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "/admin/parity": parity_page,
    "/admin/endpoints": endpoints_page,
    "/admin/disaggregation": disaggregation_page,
    "/admin/index": index_page,
    "/admin/fixes": fixes_page,
    ROUTES_PATH: routes_page,
    LINT_PATH: lint_page,
}
"""How the pages of several workers become one, by path."""


class TeamAdmin:
    """The same as `app`, for all workers."""

    def __init__(self, app: ASGIApp, team: Team) -> None:
        self._app = app
        self._team = team
        self._pages = [
            (method, re.compile(re.sub(r"{[^}]*}", ".+", path)), sharing)
            for (method, path), sharing in SHARING.items()
            if sharing is not Sharing.OWN
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        sharing = self._sharing(scope["method"], scope["path"])
        if sharing is Sharing.OWN:
            await self._app(scope, receive, send)
            return
        call = await call_of(scope, receive)
        if call is None:
            reply = Reply(413, b"application/json", b'{"detail":"the body is too long"}')
        else:
            reply = await self._shared(sharing, call, await answered(self._app, call))
        head = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})

    async def serve(self, call: Call) -> Reply:
        """What this worker alone says to a call of another."""
        return await answered(self._app, call)

    def _sharing(self, method: str, path: str) -> Sharing:
        found = (sharing for of, pattern, sharing in self._pages if of == method and pattern.fullmatch(path))
        return next(found, Sharing.OWN)

    async def _shared(self, sharing: Sharing, call: Call, own: Reply) -> Reply:
        """What all say, given what we do. Others are not asked what we refuse."""
        if own.status != (_NOT_FOUND if sharing is Sharing.FOUND else _OK):
            return own
        others = [reply for reply in await self._team.ask(call) if reply.status == _OK]
        if sharing is Sharing.FOUND:
            return others[0] if others else own
        if sharing is Sharing.TOLD:
            self._told(call, own, len(others))
            return own
        pages = [msgspec.json.decode(reply.body) for reply in (own, *others)]
        return Reply(_OK, own.content_type, msgspec.json.encode(MERGES[call.path](pages)))

    def _told(self, call: Call, own: Reply, others: int) -> None:
        """What was drained is drained for the workers to come, too; that somebody did not hear it is said."""
        if call.path.endswith("/drain"):
            said = msgspec.json.decode(own.body)
            self._team.drained(said["id"], draining=said["draining"])
        crew = self._team.crew
        if crew is not None and others < crew.alive - 1:
            fields = {"path": call.path, "workers": crew.alive, "heard": others + 1}
            LOGGER.warning("not all workers heard of a change", extra={"fields": fields})


Serve = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Also:
    """Who else answers calls of other workers: those whose path has this beginning."""

    beginning: str
    serve: Serve

    def before(self, serve: Serve | None) -> Serve:
        """Both as one; without `serve` there is nothing at other paths."""

        async def either(call: Call) -> Reply:
            if call.path.startswith(self.beginning):
                return await self.serve(call)
            return _NOTHING if serve is None else await serve(call)

        return either


def admin_of(
    token: str | None, parts: AdminParts, pages: StatusPages, team: Team | None, also: "Also | None" = None
) -> ASGIApp | None:
    """The admin API, None where there is no token; a worker answers the others from now on.

    `also` answers them whose calls begin as it says, which no request over HTTP does.
    """
    app = None if token is None else admin_app(token, parts)
    shared = None if app is None or team is None else TeamAdmin(app, team)
    open_to_all = shared or app
    guarded = None if token is None or open_to_all is None else token_first(token, open_to_all)
    if team is None:
        return guarded
    drain = partial(_drain, parts.registry)
    healthy = partial(healthy_here, parts.registry)
    serve = None if shared is None else shared.serve
    team.serve(Served(serve if also is None else also.before(serve), pages.exposition, healthy, drain))
    return guarded


def _drain(registry: Registry, endpoint_id: str) -> None:
    with suppress(UnknownEndpoint):  # of a configuration that was before
        registry.drain(EndpointId(endpoint_id), True)
