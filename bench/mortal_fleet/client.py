"""A client behind a load balancer: it takes replicas in turn, and another one where the first dies without a word.

    order    r0 r1 r2 r0 ...     a replica that cannot be reached, or closes before it has sent anything: the next one
    once anything was received   no second try: the answer may have been computed, and billed

Workers send a plan's requests in its order, turns of a conversation one after the other, plan after plan until told to
stop; whatever happens to a request, the next turn follows.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp

from bench.mortal_fleet.types import Counts, Outcome, Seen
from gateway.demo.types import PlannedRequest

IDLE_S: Final = 60.0
"""An answer that is silent for longer has failed."""
BETWEEN_ROUNDS_S: Final = 0.2
"""Before all replicas are tried again, where none could be reached."""
MOST_ROUNDS: Final = 3
_NOTHING_RECEIVED: Final = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, ConnectionError)
"""Refused, reset, broken or closed, before the head of an answer."""


class _Cut(Exception):
    """The stream ended before its end, or carried an error."""


@dataclass(slots=True)
class _Answer:
    """An answer on its way."""

    first_s: float | None = None
    usage: Counts = field(default_factory=Counts)


class Client:
    """Asks replicas. Use as an async context manager; what it saw is in `seen`, in the order of the ends."""

    def __init__(
        self, urls: Sequence[str], keys: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seen: list[Seen] = []
        self._urls = urls
        self._keys = keys
        self._clock = clock
        self._turn = itertools.count()

    async def drive(self, plans: Iterable[Sequence[PlannedRequest]], concurrency: int, until: asyncio.Event) -> None:
        """Send the requests of each plan, `concurrency` at a time, until `until` is set or there are no more."""
        done: dict[tuple[int, str, int], asyncio.Event] = {}
        upcoming = _numbered(plans, done)

        async def work(http: aiohttp.ClientSession) -> None:
            for number, request in upcoming:
                if until.is_set():
                    return
                if request.turn:
                    await done[number, request.conversation, request.turn - 1].wait()
                self.seen.append(await self._served(http, request, f"{number}.{request.conversation}.{request.turn}"))
                done[number, request.conversation, request.turn].set()

        patience = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=IDLE_S)
        async with aiohttp.ClientSession(timeout=patience) as http, asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work(http))

    async def _served(self, http: aiohttp.ClientSession, request: PlannedRequest, name: str) -> Seen:
        """One request with its retries."""
        started_s, first = self._clock(), next(self._turn)
        for retries in range(MOST_ROUNDS * len(self._urls)):
            if retries and retries % len(self._urls) == 0:
                await asyncio.sleep(BETWEEN_ROUNDS_S)
            seen = Seen(
                name=name,
                conversation=request.conversation,
                turn=request.turn,
                tenant=request.tenant,
                started_s=started_s,
                ended_s=started_s,
                outcome=Outcome.FAILED,
                replica=(first + retries) % len(self._urls),
                retries=retries,
            )
            try:
                seen = await self._asked(http, request, seen)
            except _NOTHING_RECEIVED as error:
                why = type(error).__name__
                continue
            except (aiohttp.ClientError, TimeoutError) as error:
                seen = replace(seen, why=type(error).__name__)
            return replace(seen, ended_s=self._clock())
        return replace(seen, replica=None, ended_s=self._clock(), why=why)

    async def _asked(self, http: aiohttp.ClientSession, request: PlannedRequest, seen: Seen) -> Seen:
        """One attempt. Raises what aiohttp raises where it did not come to the head of an answer."""
        assert seen.replica is not None
        headers = {"authorization": f"Bearer {self._keys[request.tenant]}", "content-type": "application/json"}
        url = f"{self._urls[seen.replica]}/v1/chat/completions"
        async with http.post(url, data=with_usage(request.body), headers=headers) as head:
            expected = head.headers.get("x-prefixgate-cached-tokens")
            seen = replace(
                seen,
                request_id=head.headers.get("x-request-id"),
                endpoint=head.headers.get("x-prefixgate-endpoint"),
                expected_tokens=None if expected is None else int(expected),
            )
            if head.status != 200:
                return replace(seen, why=f"status {head.status}: {(await head.text())[:200]}")
            answer = _Answer()
            try:
                await self._read(head.content, answer)
            except (_Cut, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                why = str(error) if isinstance(error, _Cut) else type(error).__name__
                return replace(seen, outcome=Outcome.CUT, usage=answer.usage, first_s=answer.first_s, why=why)
            return replace(seen, outcome=Outcome.SERVED, usage=answer.usage, first_s=answer.first_s)

    async def _read(self, lines: AsyncIterable[bytes], answer: _Answer) -> None:
        """A stream to its end. Raises `_Cut`, and what aiohttp raises."""
        async for line in lines:
            name, _, data = line.strip().partition(b": ")
            if name != b"data":
                continue
            if data == b"[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise _Cut(f"an error in the stream: {event['error'].get('code')}")
            if event.get("usage"):
                answer.usage = counts_of(event["usage"])
            if answer.first_s is None and any(choice["delta"].get("content") for choice in event["choices"]):
                answer.first_s = self._clock()
        raise _Cut("it ended before its end")


def with_usage(body: bytes) -> bytes:
    """The request, asking for usage at the end of the stream."""
    return json.dumps({**json.loads(body), "stream_options": {"include_usage": True}}, ensure_ascii=False).encode()


def counts_of(usage: Mapping[str, object]) -> Counts:
    """Usage as an engine says it."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Counts(*(value if isinstance(value, int) else None for value in (prompt, cached, output)))


def _numbered(
    plans: Iterable[Sequence[PlannedRequest]], done: dict[tuple[int, str, int], asyncio.Event]
) -> Iterator[tuple[int, PlannedRequest]]:
    for number, plan in enumerate(plans):
        done.update({(number, one.conversation, one.turn): asyncio.Event() for one in plan})
        for request in plan:
            yield number, request
