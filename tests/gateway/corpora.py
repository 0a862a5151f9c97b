"""The request corpora, and the same conversations in the two other dialects.

    rows of tests/data/corpora --> chat bodies --as_messages--> Anthropic Messages
                                       `--------as_responses--> OpenAI Responses

The converters are as small as clients' own: what a dialect has no words for is `NotConvertible`.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).parents[1] / "data" / "corpora"
MODEL = "demo-model"
Body = dict[str, Any]


class NotConvertible(Exception):
    """The conversation holds something that the other dialect cannot say."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the corpora; `raw` is its body as bytes."""

    id: str
    endpoint: str
    raw: bytes

    @property
    def body(self) -> Body:
        """The decoded body, read as leniently as Python does."""
        decoded: Body = json.loads(self.raw)
        return decoded


def rows(*names: str) -> list[Row]:
    """All rows of the files whose names begin so, every model called `MODEL`."""
    files = sorted(path for path in CORPORA.glob("*.jsonl*") if path.name.startswith(names))
    return [row for path in files for row in rows_of(path)]


def chats() -> list[Row]:
    """All conversations of the corpora but the difficult ones."""
    return [row for row in rows("chat", "tools", "agent") if row.endpoint == "/v1/chat/completions"]


def edge_cases() -> list[Row]:
    """The bodies that were made to be difficult."""
    return rows("edge_cases")


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of one file, compressed or not, that are requests; every model called `MODEL`."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in filter(None, data.split(b"\n")):
        row = json.loads(line)
        if "endpoint" not in row:
            continue
        raw = row["raw"] if "raw" in row else json.dumps({**row["request"], "model": MODEL}, ensure_ascii=False)
        yield Row(row["id"], row["endpoint"], raw.replace('"model":"other-model"', f'"model":"{MODEL}"').encode())


def as_messages(chat: Body) -> Body:
    """The conversation as a body of `POST /v1/messages`."""
    body: Body = {"model": chat["model"], "max_tokens": chat.get("max_tokens") or 64, "messages": []}
    messages = chat["messages"]
    if messages and messages[0]["role"] == "system":
        body["system"] = _text(messages[0].get("content"))
        messages = messages[1:]
    for message in messages:
        body["messages"].append(_messages_turn(message))
    if chat.get("tools"):
        body["tools"] = [_messages_tool(tool["function"]) for tool in chat["tools"]]
    return body


def _messages_turn(message: Body) -> Body:
    role, content = message["role"], message.get("content")
    if role == "tool":
        said = content if isinstance(content, str) else _blocks(content)
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": said}
        return {"role": "user", "content": [result]}
    if role == "assistant" and message.get("tool_calls"):
        calls = [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": _arguments(call["function"]["arguments"]),
            }
            for call in message["tool_calls"]
        ]
        return {"role": "assistant", "content": [*_blocks(content), *calls]}
    if role not in ("user", "assistant", "system"):
        raise NotConvertible(role)
    return {"role": role, "content": content if isinstance(content, str) else _blocks(content)}


def _messages_tool(function: Body) -> Body:
    tool = {"name": function["name"], "input_schema": function.get("parameters") or {}}
    return tool | {key: function[key] for key in ("description",) if key in function}


def _blocks(content: object) -> list[Body]:
    return [{"type": "text", "text": text} for text in _texts(content) if text]


def as_responses(chat: Body) -> Body:
    """The conversation as a body of `POST /v1/responses`."""
    body: Body = {"model": chat["model"], "max_output_tokens": chat.get("max_tokens") or 64, "store": False}
    messages = chat["messages"]
    if messages and messages[0]["role"] == "system":
        body["instructions"] = _text(messages[0].get("content"))
        messages = messages[1:]
    body["input"] = [item for message in messages for item in _responses_items(message)]
    if chat.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"]} for tool in chat["tools"]]
    return body


def _responses_items(message: Body) -> Iterator[Body]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        output = content if isinstance(content, str) else _parts(content, "input_text")
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
        return
    if role not in ("user", "assistant", "system", "developer"):
        raise NotConvertible(role)
    calls = message.get("tool_calls") or []
    if content or not calls:
        kind = "output_text" if role == "assistant" else "input_text"
        yield {"role": role, "content": content if isinstance(content, str) else _parts(content, kind)}
    for call in calls:
        function = call["function"]
        yield {
            "type": "function_call",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }


def _parts(content: object, kind: str) -> list[Body]:
    return [{"type": kind, "text": text} for text in _texts(content)]


def _text(content: object) -> str:
    return "\n".join(_texts(content))


def _texts(content: object) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    assert isinstance(content, list)
    for part in content:
        if part.get("type") != "text":
            raise NotConvertible(str(part.get("type")))
    return [part["text"] for part in content]


def _arguments(text: str) -> Body:
    """A call's arguments as an object; what is none is what engines make of it."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
