"""Clients behind a load balancer: steady conversations, most of them streamed; every byte of every answer is kept.

    order     g0 g1 g2 g0 ...    one that cannot be reached, or closes, or says nothing for PATIENCE_S: the next one
    once anything was received   no second try, whatever it is

Each worker holds one conversation after the other: a shared system prompt, then turns, each with what was said before;
after an answer it thinks for a while. Each prompt has the canary in it, which no log may ever show.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

from bench.faults.engines import Prompt, body_of, due_text
from bench.faults.types import Asked, Outcome, Try
from bench.faults.wire import read_answer
from gateway.demo.types import DemoFailed

CONNECT_S: Final = 1.0
PATIENCE_S: Final = 15.0
"""A load balancer's time-out for the first byte."""
IDLE_S: Final = 30.0
MOST_TRIES: Final = 6
BETWEEN_ROUNDS_S: Final = 0.3
TURNS: Final = 5
PLAIN_SHARE: Final = 0.2
SYSTEMS: Final = 6
SYSTEM_WORDS: Final = 400
TURN_WORDS: Final = 30
THINK_S: Final = (0.4, 1.2)
OUTPUT_TOKENS: Final = (8, 40)
_WHY_BYTES: Final = 300
"""So much of an answer that is none is kept for people."""
_WORDS: Final = (
    "harbour",
    "lantern",
    "orchard",
    "granite",
    "willow",
    "copper",
    "meadow",
    "thunder",
    "violet",
    "anchor",
)
_END: Final = b"data: [DONE]"


class Clients:
    """What they asked, and what became of it, is in `asked`, in the order in which it began."""

    def __init__(
        self,
        urls: Mapping[str, str],
        keys: Mapping[str, str],
        models: Sequence[str],
        canary: str,
        rng: random.Random,
    ) -> None:
        self.asked: list[Asked] = []
        self.enough = asyncio.Event()
        self._urls = urls
        self._keys = keys
        self._models = models
        self._canary = canary
        self._rng = rng
        self._turn = itertools.count()
        self._number = itertools.count()
        self._systems = [self._words(SYSTEM_WORDS) for _ in range(SYSTEMS)]

    async def run(self, workers: int) -> None:
        """Ask until `enough`."""
        connector = aiohttp.TCPConnector(limit=0, force_close=False)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
            asyncio.TaskGroup() as group,
        ):
            for number in range(workers):
                group.create_task(self._converse(http, number))

    async def greet(self) -> None:
        """Ask each gateway for each model once, before anything fails. Raises `DemoFailed`."""
        async with aiohttp.ClientSession() as http:
            for model in self._models:
                for _ in self._urls:
                    prompt = Prompt(model, (self._canary, f"{self._canary} hello"), OUTPUT_TOKENS[0], is_stream=True)
                    asked = await self._ask(http, prompt, next(iter(self._keys)))
                    if asked.outcome is not Outcome.SERVED or len(asked.tries) > 1:
                        raise DemoFailed(f"nothing has failed yet, and {model} is not served: {asked.tries}")

    async def _converse(self, http: aiohttp.ClientSession, worker: int) -> None:
        model = self._models[worker % len(self._models)]
        tenant = list(self._keys)[worker % len(self._keys)]
        await self._think()
        while not self.enough.is_set():
            said = [f"{self._canary} {self._rng.choice(self._systems)}"]
            for _ in range(TURNS):
                if self.enough.is_set():
                    return
                said.append(f"{self._canary} {self._words(TURN_WORDS)}")
                prompt = Prompt(
                    model=model,
                    said=tuple(said),
                    max_tokens=self._rng.randint(*OUTPUT_TOKENS),
                    is_stream=self._rng.random() >= PLAIN_SHARE,
                )
                asked = await self._ask(http, prompt, tenant)
                if asked.last is None or asked.outcome is not Outcome.SERVED:
                    break
                said.append(asked.last.text)
                await self._think()

    async def _think(self) -> None:
        await asyncio.sleep(self._rng.uniform(*THINK_S))

    def _words(self, count: int) -> str:
        return " ".join(self._rng.choice(_WORDS) for _ in range(count)) + f" {self._rng.getrandbits(48):x}"

    async def _ask(self, http: aiohttp.ClientSession, prompt: Prompt, tenant: str) -> Asked:
        """One request with its tries."""
        number, first = next(self._number), next(self._turn)
        asked = Asked(f"chaos-{number}", prompt.model, tenant, prompt.is_stream, time.monotonic(), due=due_text(prompt))
        self.asked.append(asked)
        gateways = list(self._urls)
        for again in range(MOST_TRIES):
            if again and again % len(gateways) == 0:
                await asyncio.sleep(BETWEEN_ROUNDS_S)
            one = Try(f"{asked.id}.{again}", gateways[(first + again) % len(gateways)], time.monotonic())
            asked.tries.append(one)
            try:
                await self._try(http, prompt, tenant, one)
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                one.why = type(error).__name__
            one.ended_s = time.monotonic()
            if one.status is not None:
                break
        asked.ended_s = time.monotonic()
        asked.outcome = outcome_of(asked.last)
        return asked

    async def _try(self, http: aiohttp.ClientSession, prompt: Prompt, tenant: str, one: Try) -> None:
        headers = {
            "authorization": f"Bearer {self._keys[tenant]}",
            "content-type": "application/json",
            "x-prefixgate-job-id": one.id,
        }
        url = f"{self._urls[one.gateway]}/v1/chat/completions"
        async with asyncio.timeout(PATIENCE_S) as patience:
            async with http.post(url, data=body_of(prompt), headers=headers) as head:
                patience.reschedule(None)
                one.request_id = head.headers.get("x-request-id")
                one.endpoint = head.headers.get("x-prefixgate-endpoint")
                one.status = head.status
                try:
                    await self._read(head, one, patience)
                except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                    one.why = type(error).__name__
                else:
                    one.is_whole = not prompt.is_stream or _END in one.body
                one.usage, _, one.text = read_answer(one.body)
                if one.status != 200 or (b'"error"' in one.body and not one.text):
                    one.why = one.why or one.body[:_WHY_BYTES].decode(errors="replace")

    async def _read(self, head: aiohttp.ClientResponse, one: Try, patience: asyncio.Timeout) -> None:
        pieces = []
        try:
            while True:
                patience.reschedule(asyncio.get_running_loop().time() + IDLE_S)
                piece = await head.content.readany()
                if not piece:
                    return
                if one.first_s is None:
                    one.first_s = time.monotonic()
                pieces.append(piece)
        finally:
            patience.reschedule(None)
            one.body = b"".join(pieces)


def outcome_of(one: Try | None) -> Outcome:
    """How a request ended, by its last try."""
    if one is None or one.status != 200:
        return Outcome.FAILED
    if one.is_whole and not has_failed(one.body):
        return Outcome.SERVED
    return Outcome.CUT if one.text else Outcome.FAILED


def has_failed(body: bytes) -> bool:
    """Whether an error stands in an answer."""
    for line in body.splitlines():
        if line.startswith(b"data:") and b'"error"' in line:
            try:
                said = json.loads(line[5:])
            except ValueError:
                return True
            if isinstance(said, dict) and said.get("error"):
                return True
    return False
