"""The client's side of one answer: start, write, end, over ASGI."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

from gateway.types import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

EXTENSION: Final = "prefixgate"
"""Where our own server says in a scope's `extensions` what it knows beyond ASGI: a `ServedRequest`."""


class ServedRequest(Protocol):
    """A request to our own server."""

    def on_leave(self, callback: Callable[[], object] | None) -> None:
        """Call this when the client leaves before its answer is complete; at once where it has left. None: nothing."""


class ClientStream:
    """What goes out to one client. `write` waits while the client reads slowly, so nothing piles up here.

    An answer that was started and is never ended is cut: the server closes the connection, and the client sees that it
    is not whole.
    """

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        """Send a message of another ASGI application."""
        self.started = True
        await self._send(message)

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send bytes of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes and end the answer."""
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
