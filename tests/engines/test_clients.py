"""The clients that people use, unchanged, through the gateway to engines that nobody here wrote.

SmolLM2 is small enough for a processor and sensible enough to copy what it is shown: the conversation has calls of
both functions before it asks for one. vLLM holds it to a function only where that is `strict`; llama.cpp does not know
how to be held to one by name.
"""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.engines.conftest import Front
from tests.engines.figures import Figures
from tests.engines.servers import MODEL

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("engine", [("vllm", "smollm2"), ("llamacpp", "smollm2")], indirect=True, ids="-".join),
]

CITIES, ZONES = ["Paris", "Rome"], ["UTC", "CET"]
SYSTEM = "You answer in one short sentence. You call a function when there is one that helps."
FRANCE = "What is the capital of France?"
SHOWN = [
    ("What is the weather in Rome?", "get_weather", {"city": "Rome"}),
    ("What time is it in UTC?", "get_time", {"zone": "UTC"}),
    ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
]
ASKED = "What is the weather in Rome?"
GREEDY = {"temperature": 0}
"""The client for Messages has no argument for it."""


def _parameters(name: str, values: list[str]) -> dict[str, Any]:
    properties = {name: {"type": "string", "enum": values}}
    return {"type": "object", "properties": properties, "required": [name], "additionalProperties": False}


FUNCTIONS: list[dict[str, Any]] = [
    {"name": "get_weather", "description": "The weather of a city.", "parameters": _parameters("city", CITIES)},
    {"name": "get_time", "description": "The time in a zone.", "parameters": _parameters("zone", ZONES)},
]
CHAT_TOOLS: Any = [{"type": "function", "function": {**function, "strict": True}} for function in FUNCTIONS]
RESPONSES_TOOLS: Any = [{"type": "function", **function, "strict": True} for function in FUNCTIONS]
MESSAGES_TOOLS: Any = [
    {"name": f["name"], "description": f["description"], "input_schema": f["parameters"], "strict": True}
    for f in FUNCTIONS
]


def is_right(name: str | None, arguments: object) -> bool:
    """Whether a call is one of those that the functions allow."""
    allowed = {"get_weather": ("city", CITIES), "get_time": ("zone", ZONES)}
    parameter, values = allowed[name or ""]
    return isinstance(arguments, dict) and list(arguments) == [parameter] and arguments[parameter] in values


@pytest.fixture
def openai_client(front: Front) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{front.gateway.url}/v1", api_key="none", timeout=300, max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(front: Front) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=front.gateway.url, api_key="none", timeout=300, max_retries=0) as client:
        yield client


def chat_messages() -> Any:
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for number, (question, name, arguments) in enumerate(SHOWN):
        call = {"id": f"call_{number}", "type": "function"}
        function = {"name": name, "arguments": json.dumps(arguments)}
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]})
    return [*messages, {"role": "user", "content": ASKED}]


def test_openai_chat_streams_a_forced_call(front: Front, openai_client: openai.OpenAI, figures: Figures) -> None:
    stream = openai_client.chat.completions.create(
        model=MODEL,
        messages=chat_messages(),
        tools=CHAT_TOOLS,
        tool_choice="required",
        max_tokens=96,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    name, arguments, finish, usage = None, "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                name = call.function.name or name
                arguments += call.function.arguments or ""
    assert finish == "tool_calls"
    assert is_right(name, json.loads(arguments))
    assert usage is not None
    [row] = front.ledger()
    assert (row.state, row.prompt_tokens, row.output_tokens) == (
        "complete",
        usage.prompt_tokens,
        usage.completion_tokens,
    )
    _proven(front, figures, "openai: chat, streamed, forced call")


def test_openai_chat_is_given_no_usage_that_it_did_not_ask_for(
    front: Front, openai_client: openai.OpenAI, figures: Figures
) -> None:
    stream = openai_client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": FRANCE}],
        max_tokens=16,
        temperature=0,
        stream=True,
    )
    chunks = list(stream)
    assert all(chunk.usage is None for chunk in chunks)
    assert "Paris" in "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    [row] = front.ledger()
    assert row.prompt_tokens is not None
    assert row.output_tokens is not None
    _proven(front, figures, "openai: chat, streamed, makes sense")


def test_openai_completions_make_sense(front: Front, openai_client: openai.OpenAI, figures: Figures) -> None:
    answer = openai_client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0
    )
    assert "Paris" in answer.choices[0].text
    _proven(front, figures, "openai: completions, plain")


def test_openai_responses_stream_a_forced_call(front: Front, openai_client: openai.OpenAI, figures: Figures) -> None:
    items: Any = []
    for number, (question, name, arguments) in enumerate(SHOWN):
        items.append({"role": "user", "content": question})
        shown = {"type": "function_call", "call_id": f"call_{number}", "name": name}
        items.append({**shown, "arguments": json.dumps(arguments)})
    stream = openai_client.responses.create(
        model=MODEL,
        instructions=SYSTEM,
        input=[*items, {"role": "user", "content": ASKED}],
        tools=RESPONSES_TOOLS,
        tool_choice="required",
        max_output_tokens=96,
        temperature=0,
        stream=True,
    )
    events = list(stream)
    assert events[0].type == "response.created"
    final = events[-1]
    assert final.type == "response.completed"
    [call] = [item for item in final.response.output if item.type == "function_call"]
    assert is_right(call.name, json.loads(call.arguments))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(deltas)) == json.loads(call.arguments)
    [row] = front.ledger()
    assert final.response.usage is not None
    assert (row.prompt_tokens, row.output_tokens) == (
        final.response.usage.input_tokens,
        final.response.usage.output_tokens,
    )
    _proven(front, figures, "openai: responses, streamed, forced call")


def anthropic_messages() -> Any:
    messages: list[dict[str, Any]] = []
    for number, (question, name, arguments) in enumerate(SHOWN):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": [call]})
    return [*messages, {"role": "user", "content": ASKED}]


def test_anthropic_messages_stream_a_forced_call(
    front: Front, anthropic_client: anthropic.Anthropic, figures: Figures
) -> None:
    with anthropic_client.messages.stream(
        model=MODEL,
        system=SYSTEM,
        messages=anthropic_messages(),
        tools=MESSAGES_TOOLS,
        tool_choice={"type": "any"},
        max_tokens=96,
        extra_body=GREEDY,
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert final.stop_reason == "tool_use"
    [call] = [block for block in final.content if block.type == "tool_use"]
    assert is_right(call.name, call.input)
    [row] = front.ledger()
    assert row.output_tokens == final.usage.output_tokens
    _proven(front, figures, "anthropic: messages, streamed, forced call")


def test_anthropic_messages_make_sense(front: Front, anthropic_client: anthropic.Anthropic, figures: Figures) -> None:
    answer = anthropic_client.messages.create(
        model=MODEL,
        system=SYSTEM,
        messages=[{"role": "user", "content": FRANCE}],
        max_tokens=16,
        extra_body=GREEDY,
    )
    [block] = answer.content
    assert block.type == "text"
    assert "Paris" in block.text
    [row] = front.ledger()
    usage = answer.usage
    read, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert row.prompt_tokens == usage.input_tokens + read + created
    _proven(front, figures, "anthropic: messages, plain, makes sense")


def test_anthropic_counts_tokens_as_the_engine_does(
    front: Front, anthropic_client: anthropic.Anthropic, figures: Figures
) -> None:
    asked: Any = {"model": MODEL, "system": SYSTEM, "messages": anthropic_messages(), "tools": MESSAGES_TOOLS}
    count = anthropic_client.messages.count_tokens(**asked)
    answer = anthropic_client.messages.create(**asked, max_tokens=1)
    usage = answer.usage
    read, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert count.input_tokens == usage.input_tokens + read + created
    figures.add(front.engine.engine, "anthropic: count_tokens", f"{count.input_tokens} tokens, as billed")


def _proven(front: Front, figures: Figures, what: str) -> None:
    """Our count was the engine's, and there was one request."""
    [row] = front.ledger()
    assert row.state == "complete"
    assert front.differences() == {}
    assert front.gateway.metric("prefixgate_token_comparisons_total", outcome="equal") == 1
    figures.add(front.engine.engine, what, f"{row.prompt_tokens} prompt, {row.output_tokens} output tokens, as counted")
