"""The client's side of one answer: start, write, end, over ASGI."""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.types import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

EXTENSION: Final = "prefixgate"
"""Where our own server says in a scope's `extensions` what it knows beyond ASGI: a `ServedRequest`."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """An application, and the path that it has with all below."""

    path: str
    app: ASGIApp

    def has(self, path: str) -> bool:
        """Whether it serves a path."""
        return path.startswith(self.path) and path[len(self.path) : len(self.path) + 1] in ("", "/")


class ServedRequest(Protocol):
    """A request to our own server, and what it can do at less cost than ASGI's messages."""

    @property
    def gone(self) -> bool:
        """Whether the client has left."""

    @property
    def is_slow(self) -> bool:
        """Whether as much waits for the client as may: then `readable` is to be awaited before the next `write`."""

    def on_leave(self, callback: Callable[[], object] | None) -> None:
        """Call this when the client leaves before its answer is complete; at once where it has left. None: nothing."""

    async def whole_body(self, allow: Callable[[int], object]) -> bytes:
        """The body, once it is whole. `allow` is told how much of it has come, each time that is more, and may raise.

        Raises the `GatewayError` of a body that cannot be read, came too slowly, or does not come any more.
        """

    async def readable(self) -> None:
        """Wait until the client has read most of what waits for it, or has left."""

    def start(self, status: int, fields: Headers) -> None:
        """The head of the answer, which leaves with the first bytes of its body."""

    def write(self, body: bytes, *, more: bool) -> None:
        """A part of the body of the answer; the last one has no `more`."""


def served_request(scope: Scope) -> ServedRequest | None:
    """The request as our own server has it; None with another server."""
    return scope.get("extensions", {}).get(EXTENSION)  # type: ignore[no-any-return]  # what a scope holds is not typed


class ClientStream:
    """What goes out to one client. `write` waits while the client reads slowly, so nothing piles up here.

    An answer that was started and is never ended is cut: the server closes the connection, and the client sees that it
    is not whole.
    """

    __slots__ = ("_send", "receive", "served", "started")

    def __init__(self, send: Send, receive: Receive, served: ServedRequest | None = None) -> None:
        self._send = send
        self.receive = receive
        self.served = served
        self.started = False

    async def send(self, message: Message) -> None:
        """Send a message of another ASGI application."""
        self.started = True
        await self._send(message)

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.started = True
        if self.served is None:
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        else:
            self.served.start(status, headers)

    async def write(self, data: bytes) -> None:
        """Send bytes of the body."""
        served = self.served
        if served is None:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            return
        if served.is_slow:
            await served.readable()
        served.write(data, more=True)

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes and end the answer."""
        served = self.served
        if served is None:
            await self._send({"type": "http.response.body", "body": data, "more_body": False})
            return
        if served.is_slow:
            await served.readable()
        served.write(data, more=False)
