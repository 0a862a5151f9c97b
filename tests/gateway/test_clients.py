"""The official clients, code unchanged, against a gateway before an engine that speaks chat completions alone.

Each asks for a tool call in a stream; what it hears is a call with arguments that parse, and a usage that is the one on
the bill. The engine is real, so is its cache: the second of two equal requests costs only its last tokens anew.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from tests.backends.reference.micro_model import micro_weights
from tests.gateway.conftest import LedgerRow, RunningGateway, StartGateway, settled

RULES = "You keep a small library. " + " ".join(f"Rule {n}: gravity is on shelf {7 * n}." for n in range(1, 13))
SCHEMA: Any = {
    "type": "object",
    "properties": {"limit": {"type": "integer"}, "title": {"type": "string"}},
    "required": ["title"],
}
TOOL: Any = {"name": "find_book", "description": "Find a book 📚 by its title."}
CHAT_TOOL: Any = {"type": "function", "function": {**TOOL, "parameters": SCHEMA}}
RESPONSES_TOOL: Any = {"type": "function", **TOOL, "parameters": SCHEMA, "strict": False}
MESSAGES_TOOL: Any = {**TOOL, "input_schema": SCHEMA}
MODEL = "tiny"


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with run_engine(
        EngineConfig(model="tiny", served_model_name=MODEL, kv_blocks=128, threads=1), micro_weights()
    ) as e:
        yield e


@pytest.fixture
def gateway(engine: RunningEngine, start_gateway: StartGateway) -> RunningGateway:
    httpx.post(f"{engine.url}/reset_prefix_cache").raise_for_status()
    return start_gateway(engine.url, models={MODEL: {"tokenizer": ensure_model("tiny")}})


def is_find_book(name: str, arguments: object) -> bool:
    """Whether a call is the one that was forced: its arguments an object with the generated title."""
    return name == "find_book" and isinstance(arguments, dict) and isinstance(arguments.get("title"), str)


def bill(row: LedgerRow) -> tuple[int | None, int | None, int | None]:
    """What a request is billed: prompt, of it cached, and output tokens."""
    return row.prompt_tokens, row.cached_tokens, row.output_tokens


async def billed(gateway: RunningGateway, count: int) -> list[tuple[int | None, int | None, int | None]]:
    rows = await settled(gateway, count)
    assert [row.state for row in rows] == ["complete"] * count
    assert [row.cached_tokens for row in rows] == [row.expected_cached_tokens for row in rows]
    assert rows[-1].cached_tokens
    return [bill(row) for row in rows]


async def test_openais_chat_stream_calls_a_tool(gateway: RunningGateway) -> None:
    def ask() -> Any:
        with (
            openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client,
            client.chat.completions.stream(
                model=MODEL,
                messages=[{"role": "system", "content": RULES}, {"role": "user", "content": "Gravity?"}],
                tools=[CHAT_TOOL],
                tool_choice="required",
                stream_options={"include_usage": True},
            ) as stream,
        ):
            return stream.get_final_completion()

    answers = [await asyncio.to_thread(ask) for _ in range(2)]
    for answer in answers:
        [call] = answer.choices[0].message.tool_calls
        assert is_find_book(call.function.name, json.loads(call.function.arguments))
        assert answer.choices[0].finish_reason == "tool_calls"
    heard = [
        (a.usage.prompt_tokens, a.usage.prompt_tokens_details.cached_tokens, a.usage.completion_tokens) for a in answers
    ]
    assert heard == await billed(gateway, 2)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "find_book"}])
async def test_openais_responses_stream_calls_a_tool(gateway: RunningGateway, choice: Any) -> None:
    def ask() -> Any:
        with (
            openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client,
            client.responses.stream(
                model=MODEL,
                instructions=RULES,
                input="Gravity?",
                tools=[RESPONSES_TOOL],
                tool_choice=choice,
                store=False,
            ) as stream,
        ):
            done = [event for event in stream if event.type == "response.function_call_arguments.done"]
            return done, stream.get_final_response()

    answers = [await asyncio.to_thread(ask) for _ in range(2)]
    for done, answer in answers:
        [call] = [item for item in answer.output if item.type == "function_call"]
        assert is_find_book(call.name, json.loads(call.arguments))
        assert [event.arguments for event in done] == [call.arguments]
        assert answer.status == "completed"
    heard = [
        (a.usage.input_tokens, a.usage.input_tokens_details.cached_tokens, a.usage.output_tokens) for _, a in answers
    ]
    assert heard == await billed(gateway, 2)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "find_book"}])
async def test_anthropics_stream_calls_a_tool(gateway: RunningGateway, choice: Any) -> None:
    def ask() -> Any:
        with (
            anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as client,
            client.messages.stream(
                model=MODEL,
                max_tokens=64,
                system=[{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": "Gravity?"}],
                tools=[MESSAGES_TOOL],
                tool_choice=choice,
            ) as stream,
        ):
            return stream.get_final_message()

    answers = [await asyncio.to_thread(ask) for _ in range(2)]
    for answer in answers:
        [call] = [block for block in answer.content if block.type == "tool_use"]
        assert is_find_book(call.name, call.input)
        assert answer.stop_reason == "tool_use"
    usages = [answer.usage for answer in answers]
    assert [
        (
            usage.input_tokens + usage.cache_read_input_tokens + (usage.cache_creation_input_tokens or 0),
            usage.cache_read_input_tokens,
            usage.output_tokens,
        )
        for usage in usages
    ] == await billed(gateway, 2)


async def test_a_conversation_goes_on_after_a_call_in_every_dialect(gateway: RunningGateway) -> None:
    """The answer of one client's turn, handed back as its own types, is the prefix of the next turn."""

    def with_anthropic() -> None:
        with anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as client:
            arguments: dict[str, Any] = {
                "model": MODEL,
                "max_tokens": 64,
                "system": RULES,
                "tools": [MESSAGES_TOOL],
                "tool_choice": {"type": "any"},
            }
            asked: list[Any] = [{"role": "user", "content": "Gravity?"}]
            first = client.messages.create(messages=asked, **arguments)
            [call] = [block for block in first.content if block.type == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Shelf 7."}]}
            asked += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
            client.messages.create(messages=asked, **arguments)

    def with_openai() -> None:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
            arguments: dict[str, Any] = {
                "model": MODEL,
                "instructions": RULES,
                "tools": [{"type": "function", **TOOL, "parameters": SCHEMA}],
                "tool_choice": "required",
                "store": False,
            }
            asked: list[Any] = [{"role": "user", "content": "Gravity?"}]
            first = client.responses.create(input=asked, **arguments)
            [call] = [item for item in first.output if item.type == "function_call"]
            asked += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "Shelf 7."}]
            client.responses.create(input=asked, **arguments)

    await asyncio.to_thread(with_anthropic)
    await asyncio.to_thread(with_openai)
    rows = await settled(gateway, 4)
    first_turns, second_turns = rows[0::2], rows[1::2]
    for first, second in zip(first_turns, second_turns, strict=True):
        assert second.prompt_tokens is not None
        assert first.prompt_tokens is not None
        assert second.cached_tokens == second.expected_cached_tokens
        assert second.prompt_tokens > first.prompt_tokens
        assert (second.cached_tokens or 0) >= first.prompt_tokens // 16 * 16 - 16
    # One conversation, one chain: what Anthropic's client asked first, OpenAI's finds in the cache.
    assert first_turns[0].prompt_tokens == first_turns[1].prompt_tokens
    assert (first_turns[1].cached_tokens or 0) > 200
