"""What one call of a model server costs the caller: microseconds of CPU, of our client, aiohttp's and httpx.

    client ──c connections──> nginx, which reads the request and answers from a cache: 0.6 KB of JSON

A body of 2.3 or 33 KB is sent, one at a time, 16 and 64 at once, on uvloop, connections kept. *floor* is a protocol
that writes bytes made before and takes what comes for the answer: what event loop and kernel cost. Rounds of all
clients take turns, so that what else the machine does meets them all; the row is the median of its rounds. User and
system time of the one process, whose loop runs on one core; nginx is another process.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp
import httpx
import uvloop

from backends import Deadlines, EndpointConfig, EndpointId, UpstreamClient, UpstreamRequest
from backends.target import request_head, target_of
from bench.mortal_fleet.fleet import free_port
from bench.overhead_backend import backend
from bench.overhead_prompts import Ask
from bench.result import Goal, write_result

PACKAGES: Final = ("prefixgate", "aiohttp", "httpx", "httptools", "uvloop")
SIZES: Final = {"2.3 KB": 2_300, "33 KB": 33_000}
AT_ONCE: Final = (1, 16, 64)
ROUNDS: Final = 5
CALLS: Final = {"floor": 4000, "ours": 4000, "aiohttp": 2000, "httpx": 320}
"""In a round, by client: all of about a second."""
_READY_WITHIN_S: Final = 10.0
_FIELDS: Final = (
    (b"host", b"gateway"),
    (b"user-agent", b"OpenAI/Python 3.57.0"),
    (b"accept", b"application/json"),
    (b"content-type", b"application/json"),
    (b"content-length", b"1"),
    (b"authorization", b"Bearer of-a-tenant"),
    (b"x-request-id", b"0f8f5a7c2d6e4b1f"),
)
_DEADLINES: Final = Deadlines()

Call = Callable[[], Awaitable[None]]


@asynccontextmanager
async def ours(url: str, body: bytes, _: int) -> AsyncIterator[Call]:
    """The client of the data path."""
    endpoint = EndpointConfig(EndpointId("a"), url, api_key="key")
    request = UpstreamRequest("POST", "/v1/chat/completions", _FIELDS, body)
    async with UpstreamClient() as client:

        async def call() -> None:
            async with await client.send(endpoint, request, _DEADLINES) as answer:
                assert answer.status == 200
                while await answer.read_chunk():
                    pass

        yield call


@asynccontextmanager
async def of_aiohttp(url: str, body: bytes, _: int) -> AsyncIterator[Call]:
    """aiohttp's, with all that a proxy does not want switched off, and a deadline for each of the three waits."""
    headers = {"content-type": "application/json", "accept-encoding": "identity", "authorization": "Bearer key"}
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept"),
        timeout=aiohttp.ClientTimeout(total=None, connect=5, sock_read=600),
    )
    async with session as client:

        async def call() -> None:
            async with client.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
                assert answer.status == 200
                while await answer.content.readany():
                    pass

        yield call


@asynccontextmanager
async def of_httpx(url: str, body: bytes, at_once: int) -> AsyncIterator[Call]:
    """httpx with its own transport."""
    headers = {"content-type": "application/json", "accept-encoding": "identity", "authorization": "Bearer key"}
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as client:

        async def call() -> None:
            async with client.stream(
                "POST", f"{url}/v1/chat/completions", content=body, headers=headers, follow_redirects=False
            ) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_raw():
                    pass

        yield call


class _Blind(asyncio.Protocol):
    """Takes the first bytes that come for the answer, which they are here."""

    def __init__(self) -> None:
        self.came = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.came.set_result(None)


@asynccontextmanager
async def floor(url: str, body: bytes, at_once: int) -> AsyncIterator[Call]:
    """No client: the same bytes."""
    loop = asyncio.get_running_loop()
    where = target_of(EndpointConfig(EndpointId("a"), url, api_key="key"))
    wire = request_head(where, UpstreamRequest("POST", "/v1/chat/completions", _FIELDS, body)) + body
    free = [await loop.create_connection(_Blind, where.host, where.port) for _ in range(at_once)]

    async def call() -> None:
        transport, protocol = one = free.pop()
        protocol.came = loop.create_future()
        transport.write(wire)
        await protocol.came
        free.append(one)

    try:
        yield call
    finally:
        for transport, _ in free:
            transport.abort()


CLIENTS: Final = {"floor": floor, "ours": ours, "aiohttp": of_aiohttp, "httpx": of_httpx}


async def cpu_us(name: str, url: str, body: bytes, at_once: int) -> float:
    """Of one round, per call, its connections made before."""
    async with CLIENTS[name](url, body, at_once) as call:
        await _calls(call, 2 * at_once, at_once)
        began_s = time.process_time()
        await _calls(call, CALLS[name], at_once)
        return (time.process_time() - began_s) / CALLS[name] * 1e6


async def _calls(call: Call, count: int, at_once: int) -> None:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


@contextmanager
def nginx(bodies: dict[str, bytes]) -> Iterator[str]:
    """A backend that costs little; its URL."""
    asks = [Ask(size, body.decode(), "", 500, 400, 20) for size, body in bodies.items()]
    with tempfile.TemporaryDirectory(prefix="bench-client-") as folder:
        port = free_port()
        server = backend(Path(folder) / "nginx", [port], asks)
        with subprocess.Popen(server.command, stderr=subprocess.DEVNULL) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                _until_ready(f"{url}/health")
                yield url
            finally:
                process.terminate()


def _until_ready(url: str) -> None:
    until_s = time.monotonic() + _READY_WITHIN_S
    while True:
        try:
            httpx.get(url, trust_env=False).raise_for_status()
        except httpx.TransportError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)
        else:
            return


def main() -> int:
    """Measure, print and write all; 1 where the goal is missed."""
    bodies = {size: (b'{"model": "m", "messages": "%s"}' % (b"x" * length))[:length] for size, length in SIZES.items()}
    rows: list[dict[str, object]] = []
    figures: dict[tuple[str, int, str], float] = {}
    with nginx(bodies) as url:
        for size, body in bodies.items():
            for at_once in AT_ONCE:
                rounds: dict[str, list[float]] = {name: [] for name in CLIENTS}
                for _ in range(ROUNDS):
                    for name, taken in rounds.items():
                        taken.append(uvloop.run(cpu_us(name, url, body, at_once)))
                for name, taken in rounds.items():
                    figures[size, at_once, name] = median(taken)
                    rows.append({"client": name, "body": size, "at_once": at_once, "cpu_us": round(median(taken), 1)})
                print(f"{size:>7} c={at_once:<3}", *(f"{name} {median(taken):7.1f}" for name, taken in rounds.items()))
    goals = [Goal("CPU of a call, 2.3 KB, 16 at once, µs", round(figures["2.3 KB", 16, "ours"], 1), 60, "<=")]
    print(*(goal.text() for goal in goals), sep="\n")
    print(f"written to {write_result('client', rows, goals, PACKAGES)}")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
