"""Clients of a gateway under load: some that come when they come, some that ask again once they are answered.

open      ---a--bc-----d->      each at its moment, whoever is still waiting: TTFT counts from that moment
closed    a|b|c, then the next whenever one has ended: the most that the fleet can do with so many clients
"""

import asyncio
import json
import time
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import aiohttp

from bench.live_load import LiveRequest
from bench.mortal_fleet.client import counts_of
from bench.mortal_fleet.types import Counts
from gateway.demo import DemoFailed

_IDLE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Served:
    """What a client saw of one request, in seconds and tokens."""

    endpoint: str
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Driven:
    """A load that was served to its end, in `wall_s` from its beginning to the last byte."""

    served: Sequence[Served]
    wall_s: float


class LiveClient:
    """Sends loads to one gateway. Raises `DemoFailed` where a request is not served whole."""

    def __init__(self, url: str, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._clock = clock

    async def open(self, requests: Sequence[LiveRequest], rate_per_s: float) -> Driven:
        """Each request at its moment, `rate_per_s` on average."""

        async def come(http: aiohttp.ClientSession, request: LiveRequest, at_s: float) -> list[Served]:
            await asyncio.sleep(at_s - self._clock())
            return [await self._ask(http, request, at_s)]

        begun_s = self._clock()
        moments_s = accumulate((request.wait / rate_per_s for request in requests), initial=begun_s)
        next(moments_s)
        async with self._session() as http:
            works = (come(http, request, at_s) for request, at_s in zip(requests, moments_s, strict=True))
            return await self._driven(works, begun_s)

    async def closed(self, requests: Sequence[LiveRequest], clients: int) -> Driven:
        """`clients` at a time, each asking again once it is answered."""
        begun_s, upcoming = self._clock(), iter(requests)

        async def ask_again(http: aiohttp.ClientSession) -> list[Served]:
            return [await self._ask(http, request, self._clock()) for request in upcoming]

        async with self._session() as http:
            return await self._driven((ask_again(http) for _ in range(clients)), begun_s)

    async def _driven(self, works: Iterable[Coroutine[None, None, list[Served]]], begun_s: float) -> Driven:
        """All of it at once, to its end. The first failure ends the others and is raised as `DemoFailed`."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in works]
        except* (DemoFailed, aiohttp.ClientError, TimeoutError) as failures:
            first = failures.exceptions[0]
            raise DemoFailed(f"a request failed: {first}") from first
        return Driven([one for task in tasks for one in task.result()], self._clock() - begun_s)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            base_url=self._url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=_IDLE_S),
        )

    async def _ask(self, http: aiohttp.ClientSession, request: LiveRequest, at_s: float) -> Served:
        async with http.post("/v1/chat/completions", data=request.body, headers=self._headers) as answer:
            if answer.status != 200:
                raise DemoFailed(f"{request.name}: status {answer.status}: {(await answer.text())[:300]}")
            endpoint = answer.headers["x-prefixgate-endpoint"]
            first_s, usage = await self._read(answer.content)
        counts = (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
        if first_s is None or None in counts:
            raise DemoFailed(f"{request.name}: an answer without text or usage")
        return Served(endpoint, first_s - at_s, *(count or 0 for count in counts))

    async def _read(self, lines: AsyncIterable[bytes]) -> tuple[float | None, Counts]:
        """When the first text came, and the usage. Raises `DemoFailed` where the stream carries an error or is cut."""
        first_s: float | None = None
        usage = Counts()
        async for line in lines:
            field, _, data = line.strip().partition(b": ")
            if field != b"data":
                continue
            if data == b"[DONE]":
                return first_s, usage
            event = json.loads(data)
            if "error" in event:
                raise DemoFailed(f"an error inside a stream: {event['error']}")
            if event.get("usage"):
                usage = counts_of(event["usage"])
            if first_s is None and any(choice["delta"].get("content") for choice in event["choices"]):
                first_s = self._clock()
        raise DemoFailed("a stream ended before its end")
