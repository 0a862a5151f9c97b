"""The data plane as bare ASGI: a request's path, key, size and body, then the pipeline; every failure as an answer.

    scope --> path and method --> key --> a place --> body (bounded) --> InferenceRequest --> pipeline
                    |                                    |                ^ a client that leaves ends it
                    |                                    `--> free path of an engine --> passthrough
                    `--> status page, admin

No framework on this path: a route of FastAPI with a streaming answer costs half the throughput.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from backends import Metering
from gateway.admission import Admission, Stay
from gateway.edge.auth import Authenticator
from gateway.edge.error_shapes import error_body
from gateway.edge.labels import Labeller
from gateway.edge.reading import LOOP_SAFE_PARSED_BYTES, Arrival, read_request
from gateway.edge.salts import with_client_salt
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
from gateway.fixes.fixer import Fixer
from gateway.ids import new_request_id
from gateway.leaving import while_client_stays
from gateway.log_lines import LOGGER
from gateway.model_routes import ModelRoutes, Serves
from gateway.passthrough import FreeRequest, Passthrough
from gateway.salt_secrets import ClientSalt
from gateway.status import Answer, StatusPages, TenantPage
from gateway.telemetry import Telemetry
from gateway.templates.calls import TemplateCalls, tagged
from gateway.types import Headers, InferenceRequest, RequestId, Route, Tenant
from gateway.wire import ASGIApp, ClientStream, Mounted, Receive, Scope, Send, served_request

_ROUTES: Final = {route.value: route for route in Route if route is not Route.OTHER}


@dataclass(frozen=True, slots=True)
class EdgeParts:
    """What the edge hands requests to."""

    pipeline: Serves
    passthrough: Passthrough
    authenticator: Authenticator
    labeller: Labeller
    pages: StatusPages
    telemetry: Telemetry
    clocks: Clocks
    admission: Admission
    max_body_bytes: int
    tenant_pages: Mapping[str, TenantPage] = field(default_factory=dict)
    """What a tenant is told about itself, by how the path begins."""
    fixer: Fixer | None = None
    """Changes requests on their way; None where no rule says so."""
    routes: ModelRoutes | None = None
    """Leads names of models to those that are served; None where no names are configured."""
    templates: TemplateCalls | None = None
    """Renders requests that call a template; None where none are kept."""
    client_salt: ClientSalt = ClientSalt.STRIP
    """What becomes of a salt that a client sends."""
    admin: ASGIApp | None = None
    """Serves `/admin`; None where no token is configured."""
    ui: Mounted | None = None
    """Serves the dashboard, at its path."""


class Edge:
    """The ASGI application for all paths that carry traffic, and for the status pages."""

    def __init__(self, parts: EdgeParts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Never raises, but for the cancellation of a stopping server."""
        client = ClientStream(send, receive, served_request(scope))
        request_id = new_request_id(int(self._parts.clocks.wall().timestamp() * 1000))
        try:
            await self._route(scope, client, request_id)
        except Exception as error:  # noqa: BLE001 - the edge: nothing may pass it
            answer = as_gateway_error(error)
            if isinstance(answer, Internal):
                LOGGER.exception("request failed", extra={"fields": {"request_id": request_id}})
            await _answer_error(client, answer, scope["path"], request_id)

    async def _route(self, scope: Scope, client: ClientStream, request_id: RequestId) -> None:
        path, method = scope["path"], scope["method"]
        route = _ROUTES.get(path)
        if route is not None:
            if method != "POST":
                raise MethodNotAllowed(f"{path} takes POST, not {method}")
            await self._let_in(route, scope, client, request_id, self._infer)
            return
        if path.startswith("/admin/") and self._parts.admin is not None:
            await self._parts.admin(scope, client.receive, client.send)
            return
        if (ui := self._parts.ui) is not None and ui.has(path):
            await ui.app(scope, client.receive, client.send)
            return
        own = self._own_page(path)
        if own is not None:
            await self._tell(own, scope, client, request_id)
            return
        page = self._parts.pages.find(path, scope["headers"])
        if page is None:
            await self._beside(scope, client, request_id)
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

    async def _beside(self, scope: Scope, client: ClientStream, request_id: RequestId) -> None:
        """A path that is not ours: one that an engine's allow-list opens, or nothing."""
        parts, path, method = self._parts, scope["path"], scope["method"]
        metering = parts.passthrough.metering(method, path)
        if metering is None:
            raise NotFound(f"there is nothing at {path[:200]}")
        if metering is Metering.METERED:
            await self._let_in(Route.OTHER, scope, client, request_id, self._infer)
        else:
            await self._let_in(Route.OTHER, scope, client, request_id, partial(self._serve_free, method))

    async def _let_in(
        self, route: Route, scope: Scope, client: ClientStream, request_id: RequestId, serve: "_Serve"
    ) -> None:
        """Serve a request that has a key, once there is a place for it and its body is whole."""
        arrival = self._arrival(route, scope, request_id)
        stay = self._parts.admission.enter() or await self._queue(client)
        try:
            body = await _read_body(arrival.headers, client, stay, self._parts.max_body_bytes)
            await serve(arrival, body, client)
        finally:
            stay.leave()

    async def _queue(self, client: ClientStream) -> Stay:
        """Wait for a place. Raises `Overloaded`, and `BadRequest` where the client leaves."""
        waiting = self._parts.admission.wait()
        stay = await waiting if client.served is None else await while_client_stays(client, waiting)
        if stay is None:
            raise BadRequest("the connection was closed before it was this request's turn")
        return stay

    async def _infer(self, arrival: Arrival, body: bytes, client: ClientStream) -> None:
        parts, monotonic = self._parts, self._parts.clocks.monotonic
        arrival.marks.received_s = monotonic()
        template = None
        if parts.templates is not None:
            called = await parts.templates.rendered(arrival, body)
            body, template = called.body, called.template
        if len(body) > LOOP_SAFE_PARSED_BYTES:
            request = await asyncio.to_thread(self._read, arrival, body)
        else:
            request = self._read(arrival, body)
        labels = parts.labeller.labels(arrival.headers, arrival.tenant, request.user)
        request = replace(request, user=None, labels=labels if template is None else tagged(labels, template))
        if parts.routes is not None:
            request = await parts.routes.choose(request)
        if parts.fixer is not None:
            request = await parts.fixer.fix(arrival, request)
        request.marks.parsed_s = monotonic()
        parts.telemetry.in_flight.inc()
        try:
            await while_client_stays(client, parts.pipeline.serve(request, client))
        finally:
            parts.telemetry.in_flight.dec()

    def _read(self, arrival: Arrival, body: bytes) -> InferenceRequest:
        """The request, with the salt that it is to have. O(body)."""
        request, policy = read_request(arrival, body), self._parts.client_salt
        return request if policy is ClientSalt.STRIP else with_client_salt(request, policy)

    async def _serve_free(self, method: str, arrival: Arrival, body: bytes, client: ClientStream) -> None:
        free = FreeRequest(arrival, method, body)
        await while_client_stays(client, self._parts.passthrough.serve(free, client))

    def _tenant(self, headers: Headers, path: str) -> Tenant:
        """Who asks, with a key that is for this path. Raises `Unauthorized` or `Forbidden`."""
        tenant = self._parts.authenticator.tenant_of(headers)
        if tenant.scopes is not None and not tenant.scopes.allow_route(path):
            raise Forbidden(f"this API key is not for {path[:200]}")
        return tenant

    def _arrival(self, route: Route, scope: Scope, request_id: RequestId) -> Arrival:
        """Who asks for what. Raises `Unauthorized` or `Forbidden`."""
        parts = self._parts
        started_s, opened_at = parts.clocks.monotonic(), parts.clocks.wall()
        headers: Headers = tuple((name, value) for name, value in scope["headers"])
        tenant = self._tenant(headers, scope["path"])
        query = scope["query_string"].decode("latin-1")
        path = f"{scope['path']}?{query}" if query else scope["path"]
        return Arrival(request_id, tenant, route, path, headers, started_s, opened_at)


_Serve = Callable[[Arrival, bytes, ClientStream], Coroutine[object, object, None]]


async def _read_body(headers: Headers, client: ClientStream, stay: Stay, max_bytes: int) -> bytes:
    """The whole body. Raises `BodyTooLarge` or `Overloaded` as soon as that is certain, `BadRequest` where the client
    leaves."""

    def allow(size_bytes: int) -> None:
        if size_bytes > max_bytes:
            raise _too_large(max_bytes)
        stay.hold(size_bytes)

    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            if int(value) > max_bytes:
                raise _too_large(max_bytes)
            stay.expect(int(value))
    if client.served is not None:
        return await client.served.whole_body(allow)
    pieces: list[bytes] = []
    size_bytes = 0
    while True:
        message = await client.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection was closed before the body was whole")
        piece: bytes = message.get("body", b"")
        size_bytes += len(piece)
        allow(size_bytes)
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
