"""A model server that misbehaves on purpose, on a real port.

A behaviour is an async function over one connection (`Peer`); the server plays its behaviours in order, one per
connection, and the last one for every further connection:

    async with HostileServer([reset_before_first_byte, answer(b"ok")]) as server:
        ... server.url ...

Behaviours at hand are below; write others inline. A behaviour that returns closes its connection properly, one that
raises because the client left ends quietly. `Peer.gone` is set when the client's side of the connection has closed.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self


class Peer:
    """One accepted connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.gone = asyncio.Event()
        self.requests: list[bytes] = []

    async def read_request(self) -> bytes:
        """Head and body of the next request, as received; raises `asyncio.IncompleteReadError` when none comes."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        request = head + await self._reader.readexactly(length)
        self.requests.append(request)
        return request

    async def send(self, data: bytes) -> None:
        """Write and flush, so that each call is a segment of its own on an idle loopback."""
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def hang(self) -> None:
        """Say nothing until the client leaves."""
        while await self._reader.read(65536):
            pass

    async def close(self) -> None:
        self._writer.close()


_TURNS_FROM_ACCEPT_TO_PEER = 10
"""Turns of the loop between the accepting of a connection and its peer being on the list, rounded up."""

Behaviour = Callable[[Peer], Awaitable[None]]


class HostileServer:
    """Plays one behaviour per accepted connection; `peers` are the connections so far, in order of acceptance."""

    def __init__(self, behaviours: Sequence[Behaviour], port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._behaviours = list(behaviours)
        self.port = port
        self._tls = tls
        self.peers: list[Peer] = []
        self._server: asyncio.Server | None = None
        self._accepted = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def peer(self, index: int) -> Peer:
        """The connection number `index`, waiting until it was accepted."""
        async with self._accepted:
            await self._accepted.wait_for(lambda: len(self.peers) > index)
        return self.peers[index]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        # Stop accepting first and let what was accepted arrive: asyncio loses a connection accepted in the very turn
        # of the loop in which the server is closed.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(_TURNS_FROM_ACCEPT_TO_PEER):
            await asyncio.sleep(0)
        self._server.close()
        for peer in self.peers:
            await peer.close()
            await peer.gone.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        async with self._accepted:
            behaviour = self._behaviours[min(len(self.peers), len(self._behaviours) - 1)]
            self.peers.append(peer)
            self._accepted.notify_all()
        try:
            await behaviour(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            peer.gone.set()


def answer(body: bytes, requests: int = 1_000_000, status: bytes = b"200 OK", extra: bytes = b"") -> Behaviour:
    """A proper answer to each of `requests` requests on the connection, which is then closed under the client.

    `extra` is further header lines, each ended by CRLF.
    """

    async def behave(peer: Peer) -> None:
        for _ in range(requests):
            await peer.read_request()
            await peer.send(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, extra, len(body), body))

    return behave


def stream(*chunks: bytes, end: bool = True, trickle: bool = False) -> Behaviour:
    """A chunked answer; without `end` it breaks off before the last chunk; `trickle` writes single bytes."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        wire = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        wire += b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        wire += b"0\r\n\r\n" if end else b""
        for piece in [wire[i : i + 1] for i in range(len(wire))] if trickle else [wire]:
            await peer.send(piece)

    return behave


async def reset_on_accept(peer: Peer) -> None:
    """RST at once, before the request was read."""
    peer.reset()


async def reset_before_first_byte(peer: Peer) -> None:
    """Read a request, then RST."""
    await peer.read_request()
    peer.reset()


async def close_before_first_byte(peer: Peer) -> None:
    """Read a request, then FIN."""
    await peer.read_request()


async def hang(peer: Peer) -> None:
    """Accept and read, and never answer."""
    await peer.hang()


def head_then(after: Behaviour, body_so_far: bytes = b"") -> Behaviour:
    """The head of a chunked answer and one chunk, then `after`."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        if body_so_far:
            await peer.send(b"%x\r\n%s\r\n" % (len(body_so_far), body_so_far))
        await after(peer)

    return behave


def raw(data: bytes) -> Behaviour:
    """Read a request, answer with these very bytes, hang."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)
        await peer.hang()

    return behave
