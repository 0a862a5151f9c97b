"""Real servers in all shapes: one alone, a cluster, a primary with a replica and sentinels."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from prefix_index.embedded import _packaged_binary
from tests.prefix_index.door import WITHIN_S
from tests.until import until

SERVICE = "index"


@dataclass
class Server:
    """One process on one port of this machine."""

    port: int
    process: subprocess.Popen[bytes]
    client: Redis = field(init=False)
    """A client for the test itself."""

    def __post_init__(self) -> None:
        self.client = Redis(port=self.port, protocol=2)

    async def ask(self, *command: str | bytes | int) -> object:
        """The reply to a command."""
        return await cast(Callable[..., Awaitable[object]], self.client.execute_command)(*command)

    def kill(self) -> None:
        """End the process as a crash would."""
        self.process.kill()
        self.process.wait()


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses, and that for a minute only who asks for one of them by its number is given.

    Tests run in several processes, so a port that is merely free would soon be another's. A connection to each of these
    has just ended: until it is forgotten the kernel leaves the port out when it chooses, for a listener or a client.
    """
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        for listener in listeners:
            with socket.create_connection(listener.getsockname()):
                listener.accept()[0].close()  # first: the side that does keeps the port in mind
        return [listener.getsockname()[1] for listener in listeners]


@asynccontextmanager
async def a_server(
    directory: Path, port: int, settings: Iterable[str] = (), *, sentinel: bool = False
) -> AsyncIterator[Server]:
    """A server that answers; it is killed at the end."""
    directory.mkdir(parents=True)
    config = directory / "server.conf"
    lines = (f"port {port}", "bind 127.0.0.1", f"dir {directory}", f"logfile {directory / 'log'}", *settings)
    config.write_text("\n".join([*lines, *(() if sentinel else ('save ""', "repl-diskless-sync-delay 0"))]) + "\n")
    command = [str(_packaged_binary()), str(config), *(["--sentinel"] if sentinel else [])]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running = Server(port, process)
    try:
        await until_answered(running.client.ping)
        yield running
    finally:
        running.kill()
        await running.client.aclose()


async def until_answered(
    ask: Callable[[], Awaitable[object]], met: Callable[[object], object] = lambda _: True
) -> None:
    """Ask again and again until the answer is as awaited; errors are no answers."""

    async def is_met() -> bool:
        with suppress(redis_errors.RedisError, OSError):
            return bool(met(await ask()))
        return False

    await until(is_met, within_s=WITHIN_S * 2)


@asynccontextmanager
async def cluster(
    directory: Path, *, replicas: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[Server]]:
    """Three primaries that share the slots, then `replicas` of the first one; with `tls` clients are told its ports."""
    number = 3 + replicas
    ports = free_ports(2 * number)
    async with AsyncExitStack() as stack:
        nodes = []
        for at in range(number):
            told = ports[at] if tls is None else await stack.enter_async_context(also_with_tls(ports[at], tls))
            settings = (
                "cluster-enabled yes",
                f"cluster-announce-port {told}",
                f"cluster-port {ports[number + at]}",
                "cluster-node-timeout 500",
                "cluster-replica-validity-factor 0",
            )
            nodes.append(await stack.enter_async_context(a_server(directory / f"node{at}", ports[at], settings)))
        bounds = (0, 5461, 10923, 16384)
        for at in range(3):
            await nodes[at].ask("CLUSTER", "ADDSLOTSRANGE", bounds[at], bounds[at + 1] - 1)
        for at in range(1, number):
            await nodes[at].ask("CLUSTER", "MEET", "127.0.0.1", ports[0], ports[number])
        for node in nodes:
            await until_answered(partial(node.ask, "CLUSTER", "INFO"), _knows(number))
        first = cast(bytes, await nodes[0].ask("CLUSTER", "MYID")).decode()
        for node in nodes[3:]:
            await until_answered(partial(node.ask, "CLUSTER", "REPLICATE", first))
            await until_answered(partial(node.ask, "INFO", "replication"), _is_linked)
        yield nodes


def _knows(number: int) -> Callable[[object], bool]:
    def met(info: object) -> bool:
        text = str(info)
        return "cluster_state:ok" in text and f"cluster_known_nodes:{number}" in text

    return met


def _is_linked(info: object) -> bool:
    return cast(dict[str, object], info).get("master_link_status") == "up"


@dataclass
class Watched:
    """A primary with a replica, and the sentinels that watch them."""

    primary: Server
    replica: Server
    sentinels: list[Server]
    ports: list[int]
    """Of the sentinels, for clients."""
    tls: bool

    @property
    def url(self) -> str:
        """For `connect`."""
        scheme = "rediss+sentinel" if self.tls else "redis+sentinel"
        return f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{SERVICE}"


@asynccontextmanager
async def watched(directory: Path, tls: ssl.SSLContext | None = None) -> AsyncIterator[Watched]:
    """A primary, a replica and three sentinels that know each other; with `tls` all are heard with TLS too."""
    ports = free_ports(5)
    async with AsyncExitStack() as stack:

        async def address(port: int) -> int:
            return port if tls is None else await stack.enter_async_context(also_with_tls(port, tls))

        primary = await stack.enter_async_context(a_server(directory / "primary", ports[0]))
        following = (f"replicaof 127.0.0.1 {primary.port}", f"replica-announce-port {await address(ports[1])}")
        replica = await stack.enter_async_context(a_server(directory / "replica", ports[1], following))
        await until_answered(lambda: replica.ask("INFO", "replication"), _is_linked)
        sentinels, monitored = [], await address(primary.port)
        for at, port in enumerate(ports[2:]):
            watching = (
                f"sentinel monitor {SERVICE} 127.0.0.1 {monitored} 2",
                f"sentinel down-after-milliseconds {SERVICE} 300",
                f"sentinel failover-timeout {SERVICE} 2000",
            )
            sentinels.append(
                await stack.enter_async_context(a_server(directory / f"sentinel{at}", port, watching, sentinel=True))
            )
        for sentinel in sentinels:
            await until_answered(partial(sentinel.ask, "SENTINEL", "MASTER", SERVICE), _sees_all)
        yield Watched(primary, replica, sentinels, [await address(one.port) for one in sentinels], tls is not None)


def _sees_all(state: object) -> bool:
    flat = cast(list[bytes], state)
    seen = dict(zip(flat[::2], flat[1::2], strict=True))
    return seen[b"num-slaves"] == b"1" and seen[b"num-other-sentinels"] == b"2"


@asynccontextmanager
async def also_with_tls(backend_port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A port where a server is heard both with TLS and without: sentinels and clients know one address of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(_listen(listener, backend_port, context))
            try:
                yield listener.getsockname()[1]
            finally:
                listening.cancel()


async def _listen(listener: socket.socket, backend_port: int, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        while True:
            accepted, _ = await loop.sock_accept(listener)
            group.create_task(_pass_on(accepted, backend_port, context))


async def _pass_on(accepted: socket.socket, backend_port: int, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    with accepted, suppress(OSError):
        readable = asyncio.Event()
        loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(accepted)
        tls = context if accepted.recv(1, socket.MSG_PEEK) == b"\x16" else None
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", backend_port)
            try:
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(_copy(reader, forth))
                    both_ways.create_task(_copy(back, writer))
            finally:
                forth.transport.abort()
        finally:
            writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(1 << 16):
            target.write(chunk)
    target.close()
