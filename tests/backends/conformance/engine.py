"""An application that answers in every way an engine may, for servers that we did not write to put on the wire.

POST /echo              what arrived: method, path, fields, length and digest of the body, as JSON
POST /sized/N           N bytes with a length          /chunked/N   the same without one, in pieces of 1,000 bytes
GET  /status/N          that status and no body        /closing     two bytes, and the wish that we close
POST /early             413 before any of the body is read
POST /steps             `one`, and after /step `two`: what is there leaves before the rest is known
POST /silent /talking   no answer, or its beginning; then `left` is set when the server says that the client has gone
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


def pattern(size: int) -> bytes:
    """Bytes that tell where they are from."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


class Engine:
    """The application; `asked` and `left` are for the thread of the test."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.left = threading.Event()
        self._stepped: asyncio.Event | None = None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        page, _, number = scope["path"].strip("/").partition("/")
        match page:
            case "early":
                await _answer(send, b"too big", status=413)
            case "silent" | "talking":
                await self._until_left(receive, send, talks=page == "talking")
            case "steps":
                await self._steps(receive, send)
            case "step":
                assert self._stepped is not None, "nobody waits"
                self._stepped.set()
                await _answer(send, b"")
            case _:
                await _plain(scope, await _body(receive), send, page, int(number or 0))

    async def _until_left(self, receive: Receive, send: Send, *, talks: bool) -> None:
        if talks:
            await _start(send, 200)
            await _more(send, b"hello")
        self.asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def _steps(self, receive: Receive, send: Send) -> None:
        await _body(receive)
        self._stepped = asyncio.Event()
        await _start(send, 200)
        await _more(send, b"one")
        await self._stepped.wait()
        await _more(send, b"two", end=True)


async def _plain(scope: Mapping[str, Any], body: bytes, send: Send, page: str, number: int) -> None:
    match page:
        case "echo":
            await _answer(send, json.dumps(_seen(scope, body)).encode())
        case "sized":
            await _answer(send, pattern(number))
        case "chunked":
            await _start(send, 200)
            whole = pattern(number)
            for place in range(0, len(whole), 1000):
                await _more(send, whole[place : place + 1000])
            await _more(send, b"", end=True)
        case "status":
            await _start(send, number)
            await _more(send, b"", end=True)
        case "closing":
            await _answer(send, b"ok", (b"connection", b"close"))


def _seen(scope: Mapping[str, Any], body: bytes) -> dict[str, object]:
    return {
        "method": scope["method"],
        "path": scope["raw_path"].decode() + "?" + scope["query_string"].decode(),
        "fields": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "length": len(body),
        "digest": hashlib.sha256(body).hexdigest(),
    }


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _answer(send: Send, body: bytes, *fields: tuple[bytes, bytes], status: int = 200) -> None:
    await _start(send, status, (b"content-length", b"%d" % len(body)), *fields)
    await _more(send, body, end=True)


async def _start(send: Send, status: int, *fields: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(fields)})


async def _more(send: Send, body: bytes, *, end: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not end})
