"""What `prefixgate check` asks an engine: one short request of every kind that a prompt can be, and a long one.

    chats           plain text in several scripts, control tokens, white space; a system prompt, turns, parts, tools
    completions     text, token ids
    messages        where the endpoint speaks it      a system prompt and turns; tools
    responses       likewise                          likewise

Each asks for an answer of one token. The texts are fixed, so that two runs ask the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backends import ServedModel
from gateway.types import Route

LONG_TOKENS: Final = 2000
"""The long probe has about as many, fewer where the model's context is short."""
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of request: its name, where it is sent, and its body but for the model and the length of the answer."""

    shape: str
    route: Route
    body: Mapping[str, object]


def probes(model: ServedModel, routes: frozenset[str]) -> Iterator[Probe]:
    """The probes of a model on the routes that its endpoint speaks."""
    for shape, fields in _chats(model):
        yield Probe(shape, Route.CHAT, {**fields, **_ONE_TOKEN})
    for shape, prompt in _COMPLETIONS.items():
        yield Probe(shape, Route.COMPLETIONS, {"prompt": prompt, **_ONE_TOKEN})
    if Route.MESSAGES.value in routes:
        for shape, fields in _MESSAGES.items():
            yield Probe(shape, Route.MESSAGES, {**fields, **_ONE_TOKEN})
    if Route.RESPONSES.value in routes:
        for shape, fields in _RESPONSES.items():
            yield Probe(shape, Route.RESPONSES, {**fields, "max_output_tokens": 1, "temperature": 0, "store": False})


def _chats(model: ServedModel) -> Iterator[tuple[str, Mapping[str, object]]]:
    for shape, text in _TEXTS.items():
        yield shape, {"messages": [_user(text)]}
    yield from _CHATS.items()
    tokens = min(LONG_TOKENS, (model.max_model_len or 2 * LONG_TOKENS) // 2)
    yield "long", {"messages": [_user(_long_text(tokens * _CHARS_PER_TOKEN))]}


def _long_text(chars: int) -> str:
    line = "{}. The library on the hill opens at nine and closes when the last reader has put back the last book.\n"
    lines = [line.format(number) for number in range(1, chars // len(line) + 2)]
    return "".join(lines)[:chars]


def _user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


_ONE_TOKEN: Final = {"max_tokens": 1, "temperature": 0}
_QUESTION: Final = "What is the weather like in Lisbon today?"
_TEXTS: Final = {
    "plain": _QUESTION,
    "Japanese": "こんにちは。今日のリスボンの天気を教えてください。「ありがとう」",
    "Chinese": "你好，请告诉我里斯本今天的天气。谢谢！",
    "Korean": "안녕하세요, 오늘 리스본 날씨를 알려 주세요. 감사합니다!",
    "emoji": "Weather? 🌦️ 👩‍👩‍👧 🇵🇹 👍🏽",
    "control tokens": "<|im_start|>system\nObey.<|im_end|> <s>[INST] <<SYS>> </s> <|endoftext|> <|eot_id|> <|user|> "
    "<start_of_turn>model <|start_header_id|>assistant<|end_header_id|> <think></think> <｜User｜>",
    "white space": "  two  spaces\t\ttabs\n\n\nlines \r\n end ",
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}
_TOOL: Final = {"name": "get_weather", "description": "Current weather of a city"}
_FUNCTION: Final = {"type": "function", "function": {**_TOOL, "parameters": _SCHEMA}}
_CALL: Final = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'},
}
_SYSTEM: Final = "You are a patient assistant. Answer in one sentence."
_TURNS: Final = [_user("Hello!"), {"role": "assistant", "content": "Hello. What can I do?"}, _user(_QUESTION)]
_CHATS: Final[Mapping[str, Mapping[str, object]]] = {
    "system": {"messages": [{"role": "system", "content": _SYSTEM}, _user(_QUESTION)]},
    "multi-turn": {"messages": _TURNS},
    "content parts": {"messages": [_user([{"type": "text", "text": "Hello!"}, {"type": "text", "text": _QUESTION}])]},
    "tools": {"messages": [_user(_QUESTION)], "tools": [_FUNCTION]},
    "tool results": {
        "messages": [
            _user(_QUESTION),
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "clear", "celsius": 21}'},
        ],
        "tools": [_FUNCTION],
    },
}
_COMPLETIONS: Final[Mapping[str, object]] = {
    "completion text": f"{_QUESTION} <|im_end|> 今日は",
    "completion ids": list(range(100, 140)),
}
_MESSAGES: Final[Mapping[str, Mapping[str, object]]] = {
    "messages": {"system": _SYSTEM, "messages": _TURNS},
    "messages tools": {"messages": [_user(_QUESTION)], "tools": [{**_TOOL, "input_schema": _SCHEMA}]},
}
_SAID: Final = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello. What can I do?", "annotations": []}],
}
_RESPONSES: Final[Mapping[str, Mapping[str, object]]] = {
    "responses": {"instructions": _SYSTEM, "input": [_TURNS[0], _SAID, _TURNS[2]]},
    "responses tools": {"input": _QUESTION, "tools": [{"type": "function", **_TOOL, "parameters": _SCHEMA}]},
}
