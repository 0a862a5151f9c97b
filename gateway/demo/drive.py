"""The clients: a few workers that send the planned requests in order and read the answers as streams.

order    a0 b0 c0 b1 a1 ...      each worker takes the next one; one whose predecessor is still under way waits
TTFT     from the first byte sent to the first piece of text read, as a client sees it
"""

import asyncio
import json
import time
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from typing import Final

from backends import Deadlines, EndpointConfig, EndpointId, UpstreamClient, UpstreamError, UpstreamRequest
from gateway.demo.types import Answered, DemoFailed, PlannedRequest, Workload

_PATIENCE: Final = Deadlines(connect_s=10.0, first_byte_s=180.0, idle_s=180.0)
_FIELDS: Final = ((b"content-type", b"application/json"),)
_MOST_ERROR_BYTES: Final = 64 * 1024


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
    gateways = {tenant: EndpointConfig(EndpointId("gateway"), url, api_key=key) for tenant, key in keys.items()}

    async def work(client: UpstreamClient, left: Iterator[PlannedRequest]) -> None:
        for request in left:
            if request.turn:
                await finished[request.conversation, request.turn - 1].wait()
            answers.append(await _ask(client, gateways[request.tenant], request, clock))
            finished[request.conversation, request.turn].set()
            on_answer()

    try:
        async with UpstreamClient() as client, asyncio.TaskGroup() as group:
            for _ in range(workload.concurrency):
                group.create_task(work(client, upcoming))
    except* (DemoFailed, UpstreamError) as failures:
        first = failures.exceptions[0]
        raise DemoFailed(f"a request failed: {first}") from first
    return answers


async def _ask(
    client: UpstreamClient, gateway: EndpointConfig, request: PlannedRequest, clock: Callable[[], float]
) -> Answered:
    started_s = clock()
    asked = UpstreamRequest("POST", "/v1/chat/completions", _FIELDS, request.body)
    async with await client.send(gateway, asked, _PATIENCE) as answer:
        if answer.status != 200:
            said = await answer.read(_MOST_ERROR_BYTES)
            raise DemoFailed(f"status {answer.status}: {said.decode(errors='replace')[:300]}")
        engine_id = dict(answer.headers)[b"x-prefixgate-endpoint"].decode()
        first_s: float | None = None
        async for text in _pieces(_lines(answer)):
            if text and first_s is None:
                first_s = clock()
    ended_s = clock()
    return Answered(engine_id, ttft_s=(first_s or ended_s) - started_s, duration_s=ended_s - started_s)


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncIterable[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


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
