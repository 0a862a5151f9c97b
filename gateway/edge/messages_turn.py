"""One message of the Messages dialect as the chat messages it becomes.

    user       [tool_result A, text, tool_result B]  -->  tool A, tool B, user text
    assistant  [thinking, text, tool_use]            -->  assistant {reasoning, content, tool_calls}

The results of tools stand before what the user adds to them, whatever their order among the blocks. A user who says
nothing else becomes no message of his own; an assistant always becomes one.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gateway.errors import BadRequest

_VOLATILE_SYSTEM_TEXT: Final = "x-anthropic-billing-header"
"""Beginning of a block that some agents put first into their system text: it differs in every request."""
_READ: Final = frozenset({"text", "image", "thinking", "tool_use", "tool_result"})
_DROPPED: Final = frozenset({"redacted_thinking", "tool_reference"})
"""Nothing that a template could say; a reference counts only inside the result of a tool."""

_CHATS_OWN: Final = frozenset({"image_url", "input_audio", "audio_url", "video_url"})
"""Parts of chats, which some clients write into messages as well; they pass as they are."""
_SAYABLE: Final = _READ | _DROPPED | _CHATS_OWN
_SAYABLE_BY_SYSTEM: Final = frozenset({"text", "tool_addition", "tool_removal"})
_SAYABLE_RESULTS: Final = frozenset({"text", "image", "tool_reference"})

_MISSING_FIELD: Final = re.compile(r"Object missing required field `(\w+)`")

_T = TypeVar("_T")


class _Block(msgspec.Struct):
    """The fields of all blocks that are read; `input` is any JSON."""

    type: str
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: Any = None
    content: str | list[dict[str, Any]] | None = None
    thinking: str | None = None


class _ResultItem(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    source: dict[str, Any] | None = None
    tool_name: str | None = None
    name: str | None = None


def converted(raw: object, kind: type[_T], place: str = "") -> _T:
    """`raw`, decoded JSON, as a view. Raises `BadRequest` that names the field, never its content."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        fault, _, path = str(error).partition(" - at `$")
        missing = _MISSING_FIELD.fullmatch(fault)
        where = place + path.rstrip("`") + (f".{missing[1]}" if missing else "")
        raise BadRequest(fault, param=where.lstrip(".") or None) from None


def system_text(content: str | Iterable[Mapping[str, Any]]) -> str:
    """The text of a system message, or of the blocks of the field `system`, without what differs in every request."""
    texts = [content] if isinstance(content, str) else [_text_of(block) for block in content]
    return "".join(text for text in texts if not text.startswith(_VOLATILE_SYSTEM_TEXT))


def unsayable(content: object, role: object, place: str) -> str | None:
    """The path of the first block that no chat can say: a document or a search result, what a server did by itself, a
    picture in a store of its own, or a kind that nobody knows. None where there is none. Linear; never raises."""
    if isinstance(content, list):
        sayable = _SAYABLE_BY_SYSTEM if role == "system" else _SAYABLE
        for number, block in enumerate(content):
            if isinstance(block, dict) and (within := _unsayable_in(block, sayable)) is not None:
                return f"{place}[{number}].{within}"
    return None


def _unsayable_in(block: Mapping[str, Any], sayable: frozenset[str]) -> str | None:
    kind, source, content = block.get("type"), block.get("source"), block.get("content")
    if not isinstance(kind, str) or kind not in sayable:
        return "type"
    if kind == "image" and isinstance(source, dict) and source.get("type") == "file":
        return "source.type"
    if kind == "tool_result" and isinstance(content, list):
        for number, item in enumerate(content):
            if isinstance(item, dict) and (within := _unsayable_in(item, _SAYABLE_RESULTS)) is not None:
                return f"content[{number}].{within}"
    return None


def turn_messages(role: str, content: str | list[dict[str, Any]], place: str) -> list[dict[str, object]]:
    """The chat messages that one message becomes; `place` is the path of its content. Raises `BadRequest`."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    turn = _Turn(role)
    for number, block in enumerate(content):
        turn.add(block, f"{place}[{number}]")
    return turn.messages()


class _Turn:
    """Collects the blocks of one message."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._results: list[dict[str, object]] = []
        self._parts: list[dict[str, object]] = []
        self._calls: list[dict[str, object]] = []
        self._reasoning: list[str] = []

    def add(self, raw: dict[str, Any], place: str) -> None:
        kind = raw.get("type")
        if not isinstance(kind, str):
            raise BadRequest("each block needs a type", param=f"{place}.type")
        if kind in _READ:
            self._add_read(converted(raw, _Block, place), raw, place)
        elif kind not in _DROPPED:
            self._parts.append(raw)

    def messages(self) -> list[dict[str, object]]:
        message: dict[str, object] = {"role": self._role}
        if self._parts:
            message["content"] = _text_or_parts(self._parts)
        elif self._role == "user":
            return self._results
        else:
            message["content"] = None
        if self._reasoning:
            message["reasoning"] = message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return [*self._results, message]

    def _add_read(self, block: _Block, raw: dict[str, Any], place: str) -> None:
        match block.type:
            case "text" if block.text:
                self._parts.append({"type": "text", "text": block.text})
            case "image" if block.source:
                self._parts.append(_picture(raw, block.source))
            case "thinking" if block.thinking is not None:
                self._reasoning.append(block.thinking)
            case "tool_use":
                self._calls.append(_call(block, len(self._calls), place))
            case "tool_result" if self._role == "user":
                self._results += _result_messages(block, place)
            case "tool_result":
                # What vLLM makes of a result that another than the user reports, lists in Python's notation included.
                self._parts.append({"type": "text", "text": f"Tool result: {block.content or ''}"})


def _text_or_parts(parts: list[dict[str, object]]) -> object:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _text_of(block: Mapping[str, Any]) -> str:
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""


def _call(block: _Block, number: int, place: str) -> dict[str, object]:
    # json.dumps and not msgspec: vLLM's spacing and escapes, which a template that prints the text would show.
    try:
        arguments = json.dumps(block.input or {})
    except RecursionError:
        raise BadRequest("the input of a tool is nested too deeply", param=f"{place}.input") from None
    function = {"name": block.name or "", "arguments": arguments}
    return {"id": block.id or f"call_{number}", "type": "function", "function": function}


def _result_messages(block: _Block, place: str) -> list[dict[str, object]]:
    """The result of a tool, then its pictures as said by the user, then the tools that it refers to."""
    texts: list[str] = []
    pictures: list[dict[str, object]] = []
    references: list[dict[str, object]] = []
    if isinstance(block.content, str):
        texts.append(block.content)
    for number, raw in enumerate(block.content if isinstance(block.content, list) else ()):
        item = converted(raw, _ResultItem, f"{place}.content[{number}]")
        name = item.tool_name or item.name
        if item.type == "text":
            texts.append(item.text or "")
        elif item.type == "image":
            pictures += _with_address(_picture(raw, item.source or {}))
        elif item.type == "tool_reference" and name:
            references.append({"type": "tool_reference", "name": name})
    result: dict[str, object] = {"role": "tool", "tool_call_id": block.tool_use_id or ""}
    messages = [{**result, "content": "\n".join(texts)}]
    if pictures:
        messages.append({"role": "user", "content": pictures})
    if references:
        messages.append({**result, "content": references})
    return messages


def _with_address(picture: dict[str, object]) -> list[dict[str, object]]:
    return [] if picture.get("image_url") == {"url": ""} else [picture]


def _picture(raw: dict[str, Any], source: dict[str, Any]) -> dict[str, object]:
    """A picture as a part; one that lies in some server's own store stays as it is."""
    match source.get("type"):
        case "file":
            return raw
        case "url":
            url = source.get("url", "")
        case _:
            url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}
