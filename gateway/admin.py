"""The admin API, under `/admin`, with a token of its own: decisions, token parity, the index, and what others add.

FastAPI, since nobody waits for it: its OpenAPI document is at `/admin/openapi.json`.
"""

import hmac
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.params import Depends as DependsOn
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from backends import Registry
from gateway.decision_log import MOST_KEPT, DecisionLog
from gateway.fleet import Fleet
from gateway.index_pages import IndexPages, IndexParts, index_router
from gateway.parity import ParityBook
from gateway.product_version import product_version
from gateway.wire import ASGIApp, Receive, Scope, Send
from prefix_index import IndexUnavailable

_NOT_LET_IN: Final = "wrong or missing admin token"
_SCHEME: Final = len("Bearer ")
_bearer = HTTPBearer(auto_error=False, description="The token in `admin_token_file`.")


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin API shows and changes."""

    decisions: DecisionLog
    parity: ParityBook
    fleet: Fleet
    registry: Registry
    index: IndexParts
    routers: tuple[APIRouter, ...] = ()
    """Further paths under `/admin`."""


def admin_app(token: str, parts: AdminParts) -> FastAPI:
    """The ASGI application for all paths under `/admin`."""

    def authorised(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(401, _NOT_LET_IN, {"www-authenticate": "Bearer"})

    return open_app(parts, [Depends(authorised)])


def open_app(parts: AdminParts, dependencies: Sequence[DependsOn] = ()) -> FastAPI:
    """The same for whoever reaches it: for parts of this process that have asked for a token themselves."""
    decisions, parity = parts.decisions, parts.parity
    app = FastAPI(
        title="prefixgate admin",
        version=product_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=dependencies,
    )
    app.include_router(index_router(IndexPages(parts.index)))
    for router in parts.routers:
        app.include_router(router)

    _tell_when_unreadable(app, parts.index)
    _describe(app)

    @app.get("/admin/requests/{request_id:path}")
    async def decision(request_id: str) -> dict[str, object]:
        """Why a request went where it went, term by term in seconds, and what came of it once it is settled."""
        found = decisions.find(request_id)
        if found is None:
            raise HTTPException(404, f"no such request among the last {MOST_KEPT:,} that this gateway decided on")
        return found.as_json()

    @app.get("/admin/parity")
    async def token_parity() -> dict[str, object]:
        """The latest prompts whose tokens we counted otherwise than the engine, and the kinds not believed since."""
        return {
            "degraded": parity.degraded(),
            "differences": [
                {**asdict(one), "at": one.at.isoformat(), "difference_tokens": one.difference_tokens}
                for one in parity.recent()
            ],
        }

    return app


def token_first(token: str, app: ASGIApp) -> ASGIApp:
    """`app` for those who have the token: others get a 401, whatever they ask for, before their body is read.

    FastAPI asks its dependencies only once it has the body.
    """
    wanted = b"Bearer " + token.encode()
    refusal = JSONResponse({"detail": _NOT_LET_IN}, 401, {"www-authenticate": "Bearer"})

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
        let_in = given[:_SCHEME].lower() == wanted[:_SCHEME].lower() and hmac.compare_digest(
            given[_SCHEME:].strip(), wanted[_SCHEME:]
        )
        await (app if let_in else refusal)(scope, receive, send)

    return guarded


def _tell_when_unreadable(app: FastAPI, index: IndexParts) -> None:
    @app.exception_handler(IndexUnavailable)
    async def unavailable(_: Request, failure: IndexUnavailable) -> JSONResponse:
        degraded = index.index.degraded_reason
        meanwhile = (
            "" if degraded is None else f"; requests are routed by this gateway's own copy meanwhile: {degraded}"
        )
        return JSONResponse({"detail": f"the index could not be read: {failure.why}{meanwhile}"}, 503)


def _describe(app: FastAPI) -> None:
    """Serve the OpenAPI document at a route of ours: FastAPI's own passes by what all others depend on, the token."""

    @app.get("/admin/openapi.json", include_in_schema=False)
    async def document() -> dict[str, Any]:
        return app.openapi()
