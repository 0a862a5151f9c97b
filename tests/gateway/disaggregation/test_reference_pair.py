"""Prefill and decode apart with engines that compute: two processes of the reference engine, and one that does both.

What the pair answers is what the one does, token for token, and what is billed as cached is what the one found.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from backends.reference.model_files import ensure_model
from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.disaggregation.engines import backend
from tests.gateway.disaggregation.ledger import attempts, split_row

pytest.importorskip("torch", reason="the engines need it")

STARTED_S = 100
RULES = " ".join(f"Rule {n}: cite shelf {7 * n}." for n in range(12))
TURNS = (f"{RULES} Hello?", f"{RULES} Hello?", f"{RULES} What is a whale?")


@asynccontextmanager
async def engine(*options: str) -> AsyncIterator[str]:
    """A reference engine with the tiny model, as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "backends.reference", "--model", "tiny", "--threads", "1", "--port", "0", *options),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(STARTED_S):
            line = await process.stdout.readline()
        yield str(json.loads(line)["url"])
    finally:
        process.kill()
        await process.wait()


def body(question: str, stream: bool) -> dict[str, Any]:
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    messages = [{"role": "user", "content": question}]
    return {"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0, **more}


def told(answer: httpx.Response, stream: bool) -> tuple[str, dict[str, Any]]:
    """The text of an answer and its usage."""
    assert answer.status_code == 200, answer.text
    if not stream:
        plain = answer.json()
        return plain["choices"][0]["message"]["content"], plain["usage"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"]["content"] for event in events if event["choices"])
    return text, events[-1]["usage"]


async def _asked(client: httpx.AsyncClient, url: str, question: str, stream: bool) -> tuple[str, int, httpx.Response]:
    answer = await client.post(f"{url}/v1/chat/completions", json=body(question, stream), timeout=60)
    text, usage = told(answer, stream)
    return text, usage["prompt_tokens_details"]["cached_tokens"], answer


@pytest.mark.timeout(240)
async def test_two_engines_answer_as_one_and_are_billed_as_one(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with AsyncExitStack() as stack:
        sides = [engine("--kv-role", "producer"), engine("--kv-role", "consumer"), engine()]
        starting = [asyncio.ensure_future(stack.enter_async_context(side)) for side in sides]
        prefill, decode, alone = await asyncio.gather(*starting)
        gateway: RunningGateway = await start(
            start_gateway,
            backends=[backend(prefill, "p", "prefill"), backend(decode, "d", "decode")],
            models={"tiny": {"tokenizer": ensure_model("tiny")}},
            isolation="none",
        )
        for turn, question in enumerate(TURNS):
            text, cached, answer = await _asked(client, gateway.url, question, stream=turn > 0)
            assert answer.headers["x-prefixgate-endpoint"] == "d"
            assert answer.headers["x-prefixgate-prefill-endpoint"] == "p"
            assert (text, cached) == (await _asked(client, alone, question, stream=turn > 0))[:2]
            assert len(await settled(gateway, turn + 1)) == turn + 1
            # The bill, P's word and D's are one, and nobody disputes them.
            assert split_row(gateway) == ("d", "p", cached, cached, cached, 8, "unpriced")
        assert cached > 0
    assert attempts(gateway) == [("p", "prefilled"), ("d", "answered")] * len(TURNS)
