"""The HTTP side of a server: paths to answers, and the faults that happen there."""

import asyncio
import hmac
import struct
import time
from collections.abc import Awaitable, Callable
from socket import SO_LINGER, SOL_SOCKET

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backends.simulated.serving.asking import wanted_of
from backends.simulated.serving.errors import ConnectionReset, Refused
from backends.simulated.serving.events import Bodies, Choice
from backends.simulated.serving.face import Reply
from backends.simulated.serving.generating import tokens
from backends.simulated.serving.site import Site
from backends.simulated.serving.types import Tally, Wanted

_NO_LINGER = struct.pack("ii", 1, 0)
_FREE_PATHS = frozenset({"/health", "/ping", "/ready", "/metrics", "/v1/health", "/health_generate"})


def create_app(site: Site) -> ASGIApp:
    """The ASGI application of one life of a server."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await site.thawed.wait()
        request = Request(scope, receive)
        try:
            response = await _answer(site, request)
            await response(scope, receive, send)
        except (ConnectionReset, ClientDisconnect):
            return
        except asyncio.CancelledError:
            if not site.is_over:
                raise  # else the process ends, and who is cut off is no news

    return app


async def _answer(site: Site, request: Request) -> Response:
    try:
        return await _routed(site, request)
    except Refused as refused:
        return _refusal(site, refused)


async def _routed(site: Site, request: Request) -> Response:
    _check_key(site, request)
    path, face = request.url.path, site.face
    if request.method == "GET" and path in face.pages:
        if path.endswith("/metrics") and not site.spec.has_metrics:
            return _reply(site, face.no_route(404))
        return _reply(site, face.pages[path](site))
    if request.method == "POST" and path in face.posts:
        return _reply(site, await face.posts[path](site, await request.body()))
    if path in (face.chat, face.completions) and request.method == "POST":
        return await _generate(site, request, chat=path == face.chat)
    is_known = path in face.pages or path in face.posts or path in (face.chat, face.completions)
    return _reply(site, face.no_route(405 if is_known else 404))


def _refusal(site: Site, refused: Refused) -> Response:
    body = site.face.unauthorized if refused.status == 401 else site.face.error(refused)
    return _reply(site, Reply(body, refused.status))


async def _generate(site: Site, request: Request, *, chat: bool) -> Response:
    raw = await request.body()
    kind = request.headers.get("content-type", "application/json")
    if site.face.needs_json_type and not kind.startswith("application/json"):
        raise Refused(400, "Unsupported Media Type: Only 'application/json' is allowed", kind=site.face.invalid_kind)
    if site.is_reset():
        _reset(site, request)
        raise ConnectionReset
    if site.is_failed():
        raise Refused(site.faults.error_status, "the engine was told to fail", kind="InternalServerError")
    wanted = wanted_of(site, raw, request.headers, chat=chat)
    bodies = Bodies(site, wanted, int(time.time()))
    if wanted.stream:
        return _Stream(site, request, wanted, bodies)
    return await _unless_gone(request.receive, lambda: _whole(site, wanted, bodies))


async def _whole(site: Site, wanted: Wanted, bodies: Bodies) -> Response:
    choices = [Choice() for _ in range(len(wanted.prompts) * wanted.n)]
    tallies = [Tally(0) for _ in choices]
    async with tokens(site, wanted) as said:
        async for one in said:
            choice = choices[one.choice]
            choice.text.append(one.text)
            choice.token_ids.extend(one.token_ids)
            choice.ends, choice.more = one.ends, one.more
            tallies[one.choice] = one.tally
    await site.thawed.wait()
    return _reply(site, Reply(bodies.whole(choices, tallies)))


class _Stream(Response):
    """A streamed answer: the head with the first token, so that what is refused late still has a status of its own."""

    media_type = "text/event-stream"

    def __init__(self, site: Site, request: Request, wanted: Wanted, bodies: Bodies) -> None:
        self.status_code = 200
        self.init_headers(dict(site.face.headers))
        self._site = site
        self._request = request
        self._wanted = wanted
        self._bodies = bodies
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returns early, with the request aborted, when the client leaves."""

        async def pump() -> Response:
            failed: Refused | ConnectionReset | None = None
            try:
                async with tokens(self._site, self._wanted) as said:
                    async for one in said:
                        chunks = self._bodies.token(one)
                        for chunk in chunks if self._sent else [*self._bodies.first(), *chunks]:
                            await self._event(chunk, send)
            except* Refused as group:
                failed = _cause_of(group)
            if isinstance(failed, ConnectionReset) or (failed is not None and not self._sent):
                raise failed
            for chunk in self._bodies.last() if failed is None else self._bodies.failure(failed):
                await self._event(chunk, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return self

        try:
            await _unless_gone(receive, pump)
        except Refused as refused:
            await _refusal(self._site, refused)(scope, receive, send)

    async def _event(self, event: bytes, send: Send) -> None:
        site, faults = self._site, self._site.faults
        await site.thawed.wait()
        if not self._sent:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if site.dies_now():
            if faults.die_within_bytes:
                part = event[: faults.die_within_bytes]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            site.die()
            raise ConnectionReset
        if faults.reset_after_events is not None and self._sent >= faults.reset_after_events:
            _reset(site, self._request)
            raise ConnectionReset
        await send({"type": "http.response.body", "body": event, "more_body": True})
        self._sent += 1


def _reset(site: Site, request: Request) -> None:
    """Cut the connection so that the other side gets a reset, not an end."""
    transport = site.transports.get(request.scope.get("client"))
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
        transport.abort()


def _check_key(site: Site, request: Request) -> None:
    key, path = site.spec.api_key, request.url.path
    if key is None or path in _FREE_PATHS or not path.startswith(site.face.guarded):
        return
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {key}".encode()):
        raise Refused(401, "Unauthorized")


def _reply(site: Site, reply: Reply) -> Response:
    headers = {**dict(site.face.headers), **dict(reply.headers)}
    if reply.body is None:
        return Response(status_code=reply.status, headers=headers)
    if isinstance(reply.body, str):
        return Response(reply.body, reply.status, headers, media_type="text/plain; version=0.0.4")
    response = Response(msgspec.json.encode(reply.body), reply.status, headers)
    response.headers["content-type"] = site.face.json_type
    return response


async def _unless_gone(receive: Receive, work: Callable[[], Awaitable[Response]]) -> Response:
    """The result of `work`, which is cancelled when the client leaves first; then nobody reads the result."""
    finished: list[Response] = []

    async def run() -> None:
        finished.append(await work())
        watcher.cancel()

    async def watch() -> None:
        await receive()  # the body has been read, so this can only be the client leaving
        worker.cancel()

    failed: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(run())
            watcher = group.create_task(watch())
    except* (ConnectionReset, Refused) as raised:
        failed = _cause_of(raised)
    if failed is not None:
        raise failed
    return finished[0] if finished else Response(status_code=499)


def _cause_of(raised: BaseExceptionGroup[Exception]) -> Refused | ConnectionReset:
    """The one that a group is about; that the connection was cut counts more than anything else."""
    found: list[Exception] = []
    groups: list[BaseException] = [raised]
    while groups:
        one = groups.pop()
        if isinstance(one, BaseExceptionGroup):
            groups.extend(one.exceptions)
        elif isinstance(one, ConnectionReset):
            return one
        elif isinstance(one, Exception):
            found.append(one)
    first = found[0]
    assert isinstance(first, Refused)
    return first
