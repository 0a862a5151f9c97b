"""A model server that computes nothing and knows what it answered: the truth that a ledger is held against.

Each call carries its number in its text, "call 17", and no two numbers give the same prompt tokens: so a row of the
ledger names its call by its tokens alone. It speaks vLLM's pages, chat completions plain and streamed, and its usage.
"""

import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

MODEL: Final = "known"
LEAST_PROMPT: Final = 32
_CALL: Final = re.compile(r"call (\d+)")
_WORDS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class Known:
    """What a call is, and costs; a function of its number."""

    number: int

    @property
    def prompt_tokens(self) -> int:
        """Another number for each call."""
        return LEAST_PROMPT + self.number

    @property
    def cached_tokens(self) -> int:
        """Some of them, in blocks."""
        return self.prompt_tokens * (self.number % 4) // 4 // 16 * 16

    @property
    def output_tokens(self) -> int:
        """One a word."""
        return 1 + self.number % len(_WORDS)

    def usage(self) -> dict[str, object]:
        """As vLLM says it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def words(self) -> tuple[str, ...]:
        """The answer."""
        return _WORDS[: self.output_tokens]


def known_by_prompt(prompt_tokens: int) -> Known:
    """The call of so many prompt tokens."""
    return Known(prompt_tokens - LEAST_PROMPT)


@dataclass
class KnownEngine:
    """A running engine. `asked` counts how often each call came; `hits` and `queries` are its counters.

    With `split_prefill` its answers claim all but one prompt token as cached, and its counters, truly, none.
    """

    rng: random.Random
    split_prefill: bool = False
    url: str = ""
    asked: dict[int, int] = field(default_factory=dict)
    pages_read: int = 0
    """How often somebody read its counters."""
    hits: int = 0
    queries: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A chat completion."""
        body: dict[str, Any] = await request.json()
        if not body:
            return web.json_response({"error": {"message": "nothing asked"}}, status=400)
        known = _known(body)
        self.asked[known.number] = self.asked.get(known.number, 0) + 1
        self.hits += 0 if self.split_prefill else known.cached_tokens
        self.queries += known.prompt_tokens
        await asyncio.sleep(self.rng.uniform(0, 0.004))
        if not body.get("stream"):
            message = {"role": "assistant", "content": " ".join(known.words())}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"id": "same", "choices": [choice], "usage": self._usage(known)})
        wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        return await self._stream(request, known, usage_wanted=wanted)

    async def _stream(self, request: web.Request, known: Known, *, usage_wanted: bool) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        with suppress(ConnectionResetError):  # the gateway was killed
            await self._write(request, answer, known, usage_wanted=usage_wanted)
        return answer

    async def _write(
        self, request: web.Request, answer: web.StreamResponse, known: Known, *, usage_wanted: bool
    ) -> None:
        await answer.prepare(request)
        for word in known.words():
            await answer.write(_event({"id": "same", "choices": [{"index": 0, "delta": {"content": word}}]}))
            await asyncio.sleep(self.rng.uniform(0, 0.003))
        if usage_wanted:
            await answer.write(_event({"id": "same", "choices": [], "usage": self._usage(known)}))
        await answer.write(b"data: [DONE]\n\n")

    def _usage(self, known: Known) -> dict[str, object]:
        usage = known.usage()
        if self.split_prefill:
            usage["prompt_tokens_details"] = {"cached_tokens": known.prompt_tokens - 1}
        return usage

    async def tokenize(self, request: web.Request) -> web.Response:
        """As many token ids as the call has, and no prefix in common with another's."""
        known = _known(await request.json())
        tokens = [known.number, *range(1, known.prompt_tokens)]
        return web.json_response({"tokens": tokens, "count": known.prompt_tokens})

    async def metrics(self, _: web.Request) -> web.Response:
        """The counters of its cache."""
        self.pages_read += 1
        lines = {
            "vllm:num_requests_running": 0,
            "vllm:num_requests_waiting": 0,
            "vllm:prefix_cache_queries_total": self.queries,
            "vllm:prefix_cache_hits_total": self.hits,
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="100000"}': 1,
        }
        text = "".join(f"{name} {value}\n" for name, value in lines.items())
        return web.Response(text=text + "process_start_time_seconds 1795961218.5\n")


@asynccontextmanager
async def running_known_engine(
    seed: int, *, split_prefill: bool = False, tokenizes: bool = True
) -> AsyncIterator[KnownEngine]:
    """One on a free port, until the block ends; one that `tokenizes` tells the tokens of a prompt."""
    engine = KnownEngine(random.Random(seed), split_prefill)
    app = web.Application()
    models = {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 1 << 20}],
    }
    app.router.add_get("/v1/models", _always(models))
    app.router.add_get("/version", _always({"version": "0.32.0"}))
    app.router.add_get("/health", _always({}))
    app.router.add_get("/metrics", engine.metrics)
    if tokenizes:
        app.router.add_post("/tokenize", engine.tokenize)
    app.router.add_post("/v1/chat/completions", engine.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = next(itertools.islice((address[1] for address in runner.addresses), 1))
        engine.url = f"http://127.0.0.1:{port}"
        yield engine
    finally:
        await runner.cleanup()


def _known(body: dict[str, Any]) -> Known:
    said = body.get("messages") or body.get("prompt") or ""
    found = _CALL.search(json.dumps(said))
    return Known(int(found.group(1)) if found else 0)


def _always(content: object) -> Any:
    async def page(_: web.Request) -> web.Response:
        return web.json_response(content)

    return page


def _event(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"
