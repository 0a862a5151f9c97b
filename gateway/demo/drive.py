"""The clients: a few workers that send the planned requests in order and read the answers as streams.

order    a0 b0 c0 b1 a1 ...      each worker takes the next one; one whose predecessor is still under way waits
TTFT     from the first byte sent to the first piece of text read, as a client sees it
"""

import asyncio
import json
import time
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from typing import Final

import aiohttp

from gateway.demo.types import Answered, DemoFailed, PlannedRequest, Workload

_IDLE_S: Final = 180.0


async def drive(
    workload: Workload,
    url: str,
    keys: Mapping[str, str],
    on_answer: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> list[Answered]:
    """Send all requests, `workload.concurrency` at a time; `keys` by tenant. Raises `DemoFailed` on any error."""
    finished = {(one.conversation, one.turn): asyncio.Event() for one in workload.requests}
    upcoming = iter(workload.requests)
    answers: list[Answered] = []
    patience = aiohttp.ClientTimeout(total=None, sock_read=_IDLE_S)

    async def work(http: aiohttp.ClientSession, left: Iterator[PlannedRequest]) -> None:
        for request in left:
            if request.turn:
                await finished[request.conversation, request.turn - 1].wait()
            answers.append(await _ask(http, keys[request.tenant], request, clock))
            finished[request.conversation, request.turn].set()
            on_answer()

    try:
        async with aiohttp.ClientSession(url, timeout=patience) as http, asyncio.TaskGroup() as group:
            for _ in range(workload.concurrency):
                group.create_task(work(http, upcoming))
    except* (DemoFailed, aiohttp.ClientError, TimeoutError) as failures:
        first = failures.exceptions[0]
        raise DemoFailed(f"a request failed: {first}") from first
    return answers


async def _ask(http: aiohttp.ClientSession, key: str, request: PlannedRequest, clock: Callable[[], float]) -> Answered:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    started_s = clock()
    async with http.post("/v1/chat/completions", data=request.body, headers=headers) as answer:
        if answer.status != 200:
            raise DemoFailed(f"status {answer.status}: {(await answer.text())[:300]}")
        engine_id = answer.headers["x-prefixgate-endpoint"]
        first_s: float | None = None
        async for text in _pieces(answer.content):
            if text and first_s is None:
                first_s = clock()
    ended_s = clock()
    return Answered(engine_id, ttft_s=(first_s or ended_s) - started_s, duration_s=ended_s - started_s)


async def _pieces(lines: AsyncIterable[bytes]) -> AsyncIterable[str]:
    """The text of each event of a stream. Raises `DemoFailed` where the stream carries an error or is cut."""
    async for line in lines:
        field, _, data = line.strip().partition(b": ")
        if field != b"data":
            continue
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise DemoFailed(f"an error inside a stream: {event['error']}")
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""
    raise DemoFailed("a stream ended before its end")
