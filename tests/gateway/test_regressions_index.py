"""What users of other routers saw go wrong with indexes, through the whole gateway with a real engine."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from tests.gateway.conftest import MODEL, RunningGateway, StartGateway
from tests.until import until

STORIES = [f"Report {number}. " + "A caravan crosses the desert by night. " * 12 for number in range(6)]


@pytest.fixture(scope="module")
def speaking() -> Iterator[RunningEngine]:
    """A model that learned to speak: it samples what its tokenizer would have made of the text; and whose chats begin
    with one system prompt."""
    with run_engine(EngineConfig(model="smollm2", served_model_name=MODEL, kv_blocks=600, threads=1)) as running:
        yield running


def start(start_gateway: StartGateway, engine: RunningEngine, model: str = MODEL) -> RunningGateway:
    return start_gateway(engine.url, models={MODEL: {"tokenizer": ensure_model(model)}})


async def ask(gateway: RunningGateway, *said: str, max_tokens: int = 1) -> httpx.Response:
    messages = [{"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(said)]
    body = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    answer = await asyncio.to_thread(gateway.http.post, "/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer


async def complete(gateway: RunningGateway, prompt: str) -> int:
    """Ask for one token behind a text of which nothing but equal texts shares a block; what was expected of it."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    answer = await asyncio.to_thread(gateway.http.post, "/v1/completions", json=body)
    assert answer.status_code == 200
    return int(answer.headers["x-prefixgate-cached-tokens"])


async def test_backend_restart_fence_a_wiped_cache_is_noticed_from_what_is_missing_alone(
    engine: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start, start_gateway, engine)
    for story in STORIES:
        await complete(gateway, story)
    known = [await complete(gateway, story) for story in STORIES]
    assert min(known) >= 64
    assert httpx.post(f"{engine.url}/reset_prefix_cache").status_code == 200
    after = [await complete(gateway, story) for story in STORIES]
    assert after[:3] == known[:3]
    assert after[3:] == [0, 0, 0], "three are enough"
    assert gateway.metric("prefixgate_inferred_restarts_total") == 1


async def test_a_lost_system_prompt_takes_along_all_that_began_with_it(
    speaking: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start, start_gateway, speaking, "smollm2")
    for story in STORIES[:3]:
        await ask(gateway, story)
    assert httpx.post(f"{speaking.url}/reset_prefix_cache").status_code == 200
    after = [await ask(gateway, story) for story in STORIES[:3]]
    expected = [int(answer.headers["x-prefixgate-cached-tokens"]) for answer in after]
    reported = [answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in after]
    assert reported[0] == 0 < expected[0]
    assert expected[1:] == reported[1:], "one contradiction is enough"


async def test_the_next_turn_is_expected_with_the_answer_that_it_begins_with(
    speaking: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start, start_gateway, speaking, "smollm2")
    question = "Tell me in a few sentences about the sea and its tides."
    first = await ask(gateway, question, max_tokens=48)
    said = first.json()["choices"][0]["message"]["content"]
    await until(lambda: gateway.metric("prefixgate_next_turns_total"))
    second = await ask(gateway, question, said, "And the moon?")
    usage = second.json()["usage"]
    reported = usage["prompt_tokens_details"]["cached_tokens"]
    assert reported > first.json()["usage"]["prompt_tokens"]
    assert int(second.headers["x-prefixgate-cached-tokens"]) == reported
