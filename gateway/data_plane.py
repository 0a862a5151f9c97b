"""The data plane as bare ASGI: a request's path, key, size and body, then the pipeline; every failure as an answer.

    scope --> path and method --> key --> body (bounded) --> InferenceRequest --> pipeline
                    |                        |                ^ while it works, one task waits for the client to leave
                    |                        `--> free path of an engine --> passthrough
                    `--> status page, admin

No framework on this path: a route of FastAPI with a streaming answer costs half the throughput.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backends import Metering
from gateway.edge.auth import Authenticator
from gateway.edge.error_shapes import error_body
from gateway.edge.labels import Labeller
from gateway.edge.reading import LOOP_SAFE_PARSED_BYTES, Arrival, read_request
from gateway.errors import (
    BadRequest,
    BodyTooLarge,
    Forbidden,
    GatewayError,
    Internal,
    MethodNotAllowed,
    NotFound,
    as_gateway_error,
)
from gateway.exchange import Clocks
from gateway.ids import new_request_id
from gateway.passthrough import FreeRequest, Passthrough
from gateway.pipeline import Pipeline
from gateway.status import Answer, StatusPages, TenantPage
from gateway.telemetry import LOGGER, Telemetry
from gateway.types import Headers, RequestId, Route, Tenant
from gateway.wire import ASGIApp, ClientStream, Receive, Scope, Send

_ROUTES: Final = {route.value: route for route in Route if route is not Route.OTHER}


class ClientLeft(Exception):
    """The client closed its connection before the answer was whole."""


@dataclass(frozen=True, slots=True)
class EdgeParts:
    """What the edge hands requests to."""

    pipeline: Pipeline
    passthrough: Passthrough
    authenticator: Authenticator
    labeller: Labeller
    pages: StatusPages
    telemetry: Telemetry
    clocks: Clocks
    max_body_bytes: int
    tenant_pages: Mapping[str, TenantPage] = field(default_factory=dict)
    """What a tenant is told about itself, by how the path begins."""
    admin: ASGIApp | None = None
    """Serves `/admin`; None where no token is configured."""


class Edge:
    """The ASGI application for all paths that carry traffic, and for the status pages."""

    def __init__(self, parts: EdgeParts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Never raises, but for the cancellation of a stopping server."""
        client = ClientStream(send)
        request_id = new_request_id(int(self._parts.clocks.wall().timestamp() * 1000))
        try:
            await self._route(scope, receive, client, request_id)
        except Exception as error:  # noqa: BLE001 - the edge: nothing may pass it
            answer = as_gateway_error(error)
            if isinstance(answer, Internal):
                LOGGER.exception("request failed", extra={"fields": {"request_id": request_id}})
            await _answer_error(client, answer, scope["path"], request_id)

    async def _route(self, scope: Scope, receive: Receive, client: ClientStream, request_id: RequestId) -> None:
        path, method = scope["path"], scope["method"]
        route = _ROUTES.get(path)
        if route is not None:
            if method != "POST":
                raise MethodNotAllowed(f"{path} takes POST, not {method}")
            await self._infer(route, scope, receive, client, request_id)
            return
        if path.startswith("/admin/") and self._parts.admin is not None:
            await self._parts.admin(scope, receive, client.send)
            return
        own = self._own_page(path)
        if own is not None:
            await self._tell(own, scope, client, request_id)
            return
        page = self._parts.pages.find(path, scope["headers"])
        if page is None:
            await self._beside(scope, receive, client, request_id)
            return
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(f"{path} takes GET, not {method}")
        if page.needs_key:
            self._tenant(scope["headers"], path)
        await _answer(client, await page.render(), method, request_id)

    def _own_page(self, path: str) -> TenantPage | None:
        pages = self._parts.tenant_pages.items()
        return next((page for begin, page in pages if f"{path}/".startswith(f"{begin}/")), None)

    async def _tell(self, page: TenantPage, scope: Scope, client: ClientStream, request_id: RequestId) -> None:
        """A tenant about itself: who asks is known by the key alone."""
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(f"{path} takes GET, not {method}")
        tenant = self._tenant(scope["headers"], path)
        query = scope["query_string"].decode("latin-1")
        await _answer(client, await page(tenant.id, path, query), method, request_id)

    async def _beside(self, scope: Scope, receive: Receive, client: ClientStream, request_id: RequestId) -> None:
        """A path that is not ours: one that an engine's allow-list opens, or nothing."""
        parts, path, method = self._parts, scope["path"], scope["method"]
        metering = parts.passthrough.metering(method, path)
        if metering is None:
            raise NotFound(f"there is nothing at {path[:200]}")
        if metering is Metering.METERED:
            await self._infer(Route.OTHER, scope, receive, client, request_id)
            return
        arrival, body = await self._arrive(Route.OTHER, scope, receive, request_id)
        free = FreeRequest(arrival, method, body)
        await _until_client_leaves(receive, parts.passthrough.serve(free, client))

    async def _infer(
        self, route: Route, scope: Scope, receive: Receive, client: ClientStream, request_id: RequestId
    ) -> None:
        parts = self._parts
        arrival, body = await self._arrive(route, scope, receive, request_id)
        if len(body) > LOOP_SAFE_PARSED_BYTES:
            request = await asyncio.to_thread(read_request, arrival, body)
        else:
            request = read_request(arrival, body)
        labels = parts.labeller.labels(arrival.headers, arrival.tenant, request.user)
        request = replace(request, user=None, labels=labels)
        parts.telemetry.in_flight.inc()
        try:
            await _until_client_leaves(receive, parts.pipeline.serve(request, client))
        finally:
            parts.telemetry.in_flight.dec()

    def _tenant(self, headers: Headers, path: str) -> Tenant:
        """Who asks, with a key that is for this path. Raises `Unauthorized` or `Forbidden`."""
        tenant = self._parts.authenticator.tenant_of(headers)
        if tenant.scopes is not None and not tenant.scopes.allow_route(path):
            raise Forbidden(f"this API key is not for {path[:200]}")
        return tenant

    async def _arrive(
        self, route: Route, scope: Scope, receive: Receive, request_id: RequestId
    ) -> tuple[Arrival, bytes]:
        """Who asks for what, and the whole body, which is not read for those without a key."""
        parts = self._parts
        started_s, opened_at = parts.clocks.monotonic(), parts.clocks.wall()
        headers: Headers = tuple((name, value) for name, value in scope["headers"])
        tenant = self._tenant(headers, scope["path"])
        body = await _read_body(headers, receive, parts.max_body_bytes)
        query = scope["query_string"].decode("latin-1")
        path = f"{scope['path']}?{query}" if query else scope["path"]
        return Arrival(request_id, tenant, route, path, headers, started_s, opened_at), body


async def _until_client_leaves(receive: Receive, work: Coroutine[object, object, None]) -> None:
    """Run `work`; cancel it when the client leaves. Raises what `work` raises."""
    failure: list[Exception] = []

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ClientLeft

    async def run() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - kept out of the group, which would wrap it, and raised below
            failure.append(error)

    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            await run()
            watcher.cancel()
    except* ClientLeft:
        pass
    if failure:
        raise failure[0]


async def _read_body(headers: Headers, receive: Receive, max_bytes: int) -> bytes:
    """The whole body. Raises `BodyTooLarge` as soon as that is certain, `BadRequest` where the client leaves."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise _too_large(max_bytes)
    pieces: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection was closed before the body was whole")
        piece: bytes = message.get("body", b"")
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is longer than {max_bytes} bytes")


async def _answer(client: ClientStream, answer: Answer, method: str, request_id: RequestId) -> None:
    length = (b"content-length", b"%d" % len(answer.body))
    headers = [header for header in answer.headers if header[0] != length[0]]
    await client.start(answer.status, (*headers, length, (b"x-request-id", request_id.encode())))
    await client.end(b"" if method == "HEAD" else answer.body)


async def _answer_error(client: ClientStream, error: GatewayError, path: str, request_id: RequestId) -> None:
    if client.started:
        return  # the answer is cut: see ClientStream
    body = error_body(error, path)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    headers.extend(error.headers)
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await client.start(error.status, tuple(headers))
    await client.end(body)
