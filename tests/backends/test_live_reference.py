"""Detection, a call and a restart against the real reference engine, as a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from backends.client import UpstreamClient
from backends.registry import PollSettings, Registry
from backends.types import Deadlines, EndpointConfig, EndpointId, EndpointSnapshot, ServedModel, UpstreamRequest

A = EndpointId("a")
PATIENT = PollSettings(deadline_s=30)

pytest.importorskip("torch", reason="the engine is a process of its own that needs it")


@asynccontextmanager
async def reference_engine(*options: str) -> AsyncIterator[str]:
    """Starts the engine, yields its URL once it accepts connections, kills it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "backends.reference", "--model", "tiny", "--threads", "1", *options),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        yield str(json.loads(line)["url"])
    finally:
        process.kill()
        await process.wait()


async def test_the_reference_engine_is_detected_called_and_its_restart_seen() -> None:
    generations: list[int] = []
    async with AsyncExitStack() as stack:
        async with reference_engine("--port", "0", "--kv-blocks", "64", "--block-size", "8") as url:
            config = EndpointConfig(A, url)
            clock = asyncio.get_running_loop().time
            registry = await stack.enter_async_context(Registry([config], clock, settings=PATIENT))
            registry.subscribe(lambda _, generation: generations.append(generation))
            await registry.detect_all(deadline_s=30)
            _is_detected(registry.snapshot()[0])
            await _a_prompt_is_cached_the_second_time(config)
            await _a_text_is_tokenised(config)
            await registry.poll(A)
            load = registry.snapshot()[0].load
            assert load is not None
            assert load.prefix_hits is not None
            assert load.prefix_hits > 0

        await registry.poll(A)
        assert registry.snapshot()[0].unhealthy_reason == "cannot connect"
        async with reference_engine("--port", url.rsplit(":", 1)[1], "--kv-blocks", "32"):
            await registry.poll(A)
            again = registry.snapshot()[0]
            assert again.healthy
            assert again.facts is not None
            assert again.facts.capacity_blocks == 32
            assert len(generations) == 2
            assert generations[0] < generations[1] == again.generation


def _is_detected(seen: EndpointSnapshot) -> None:
    assert seen.healthy, seen.unhealthy_reason
    facts = seen.facts
    assert facts is not None
    assert facts.models == (ServedModel("tiny", facts.models[0].max_model_len),)
    assert (facts.engine, facts.block_size, facts.capacity_blocks) == ("reference", 8, 64)
    assert facts.reports_cached_tokens is True


async def _a_prompt_is_cached_the_second_time(config: EndpointConfig) -> None:
    body = {"model": "tiny", "prompt": "one two three four five six seven eight nine ten " * 4, "max_tokens": 2}
    cached = []
    async with UpstreamClient() as client:
        for _ in range(2):
            answer = json.loads(await _post(client, config, "/v1/completions", body))
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == 0
    assert cached[1] > 0


async def _a_text_is_tokenised(config: EndpointConfig) -> None:
    async with UpstreamClient() as client:
        answer = await _post(client, config, "/tokenize", {"model": "tiny", "prompt": "hi there"})
    assert len(json.loads(answer)["tokens"]) >= 2


async def _post(client: UpstreamClient, config: EndpointConfig, path: str, body: dict[str, object]) -> bytes:
    request = UpstreamRequest("POST", path, ((b"content-type", b"application/json"),), json.dumps(body).encode())
    async with await client.send(config, request, Deadlines(first_byte_s=30)) as response:
        assert response.status == 200
        return await response.read(100_000)
