"""Connections of ours on a real port, with an application of the test's own, and clients that write raw bytes.

async with served(app, header_s=0.3) as house, house.client() as client:
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    head, body = await client.answer()
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from prometheus_client import CollectorRegistry

from gateway.config import Limits
from gateway.pressure_metrics import PressureMetrics
from gateway.serving import Connection, Connections
from gateway.wire import ASGIApp, Receive, Scope, Send

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error in it."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


@dataclass
class RawClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> Self:
        """Write bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()
        return self

    async def answer(self, *, has_body: bool = True) -> RawAnswer:
        """The next whole answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")[:-2]
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        status = int(lines[0].split(" ")[1])
        body = b""
        if not has_body:
            pass
        elif "content-length" in fields:
            body = await self.reader.readexactly(int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            body = await self._chunks()
        else:
            body = await self.reader.read()
        return RawAnswer(status, fields, body)

    async def ended(self) -> bytes:
        """Whatever comes until the server closes its side; raises `ConnectionResetError` where that is a reset."""
        return await self.reader.read()

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    """A client until the block ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


@dataclass
class House:
    """Connections that are served, and where."""

    port: int
    connections: Connections
    metrics: CollectorRegistry

    def client(self) -> AbstractAsyncContextManager[RawClient]:
        """A client that is connected."""
        return connected(self.port)

    def count(self, name: str, reason: str) -> float:
        """A counter of `PressureMetrics`."""
        return self.metrics.get_sample_value(f"prefixgate_{name}_total", {"reason": reason}) or 0.0


@asynccontextmanager
async def served(app: ASGIApp, **limits: float) -> AsyncIterator[House]:
    """Serve an application until the block ends, with these of the `limits`."""
    loop, registry = asyncio.get_running_loop(), CollectorRegistry()
    given: dict[str, Any] = {"keep_alive_s": 60.0, **limits}
    connections = Connections(app, Limits(**given), time.time, PressureMetrics(registry))
    server = await loop.create_server(lambda: Connection(connections, loop), "127.0.0.1", 0)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(0.02)
            connections.sweep(loop.time())

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        sweeping = group.create_task(sweep())
        try:
            yield House(server.sockets[0].getsockname()[1], connections, registry)
        finally:
            sweeping.cancel()
            server.close()
            connections.cut()
            while connections.calls:
                await asyncio.sleep(0)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the method, the path, and the length and content of the body."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    said = f"{scope['method']} {scope['path']} {len(body)} ".encode() + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said, "more_body": False})
