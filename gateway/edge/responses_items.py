"""Input items of the Responses dialect as messages of a chat.

    input                                      messages
    message, user                              user
    reasoning          -.                      assistant: reasoning, content, tool_calls
    message, assistant  |- one turn of the -->
    function_call(s)   -'  model's
    function_call_output                       tool

Items are put together as vLLM does it, since the same form tells which tokens its own Responses route will see: a call
joins the assistant message before it; reasoning and text do so where that message has none yet. Two differences, both
where vLLM would lose text: it keeps the first part only of an assistant message or a reasoning item.

Reasoning is written under both names that engines read, `reasoning` and `reasoning_content`. An item of a kind that no
chat has (a search of the server's own, a reference to a stored item) becomes a message with that item as its part: the
prompt is then unknown rather than wrong. Linear in the input; nothing of it is changed.
"""

from collections.abc import Mapping

from gateway.edge.responses_tools import custom_arguments, flat_name, object_items, text_field
from gateway.errors import BadRequest

Message = dict[str, object]

MESSAGE_KINDS = frozenset(
    {
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "message",
        "reasoning",
    }
)
"""Kinds of items that have a place in a chat."""

_TEXT_PARTS = ("input_text", "output_text", "text")
_UNFINISHED = ("in_progress", "incomplete")


def chat_messages(instructions: object, given: object) -> list[Message]:
    """The messages that `instructions` and `input` are. Raises `BadRequest` for shapes that no server takes."""
    messages: list[Message] = []
    if isinstance(instructions, str):
        if instructions:
            messages.append({"role": "system", "content": instructions})
    elif instructions is not None:
        for path, item in object_items(instructions, "instructions"):
            _add(messages, path, item)
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    else:
        for path, item in object_items(given, "input"):
            _add(messages, path, item)
    return messages


def continues_last(given: object) -> bool:
    """Whether the last item is a message or a reasoning that was begun and is to be continued."""
    last = given[-1] if isinstance(given, list) and given else None
    if not isinstance(last, dict):
        return False
    return kind_of(last) in ("message", "reasoning") and last.get("status") in _UNFINISHED


def kind_of(item: Mapping[str, object]) -> str | None:
    """The kind of an item: its type, or `message` where it has a role; a bare id is a reference. None for neither."""
    kind = item.get("type")
    if isinstance(kind, str) and (kind in MESSAGE_KINDS or "role" not in item):
        return kind
    if isinstance(item.get("role"), str):
        return "message"
    return "item_reference" if kind is None and isinstance(item.get("id"), str) else None


def _add(messages: list[Message], path: str, item: Mapping[str, object]) -> None:
    match kind_of(item):
        case "message":
            _add_message(messages, path, item)
        case "reasoning":
            _add_reasoning(messages, path, item)
        case "function_call" | "custom_tool_call":
            _add_call(messages, path, item)
        case "function_call_output" | "custom_tool_call_output":
            output = chat_content(item.get("output"), f"{path}.output")
            messages.append({"role": "tool", "content": output, "tool_call_id": text_field(item, "call_id", path)})
        case None:
            raise BadRequest(f"Expected an item with a type or a role - at `{path}`", param=path)
        case _:
            messages.append({"role": "assistant", "content": [item]})


def _add_message(messages: list[Message], path: str, item: Mapping[str, object]) -> None:
    role = text_field(item, "role", path)
    content = chat_content(item.get("content"), f"{path}.content")
    before = _assistant_before(messages)
    if role == "assistant" and content is not None and before is not None and before.get("content") is None:
        before["content"] = content
        return
    message: Message = {"role": role, "content": content}
    if isinstance(name := item.get("name"), str):
        message["name"] = name
    messages.append(message)


def _add_reasoning(messages: list[Message], path: str, item: Mapping[str, object]) -> None:
    told = "content" if item.get("content") else "summary"
    text = _joined_text(item.get(told), f"{path}.{told}")
    before = _assistant_before(messages)
    if before is None or "reasoning" in before:
        before = {"role": "assistant"}
        messages.append(before)
    before["reasoning"] = before["reasoning_content"] = text


def _add_call(messages: list[Message], path: str, item: Mapping[str, object]) -> None:
    name = text_field(item, "name", path)
    if item.get("type") == "custom_tool_call":
        arguments = custom_arguments(text_field(item, "input", path))
    else:
        arguments = text_field(item, "arguments", path)
        if isinstance(namespace := item.get("namespace"), str) and namespace:  # there are only functions in them
            name = flat_name(namespace, name)
    call_id = text_field(item, "call_id", path)
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    before = _assistant_before(messages)
    if before is None:
        messages.append({"role": "assistant", "tool_calls": [call]})
        return
    calls = before.setdefault("tool_calls", [])
    assert isinstance(calls, list), "made here"
    calls.append(call)


def _assistant_before(messages: list[Message]) -> Message | None:
    return messages[-1] if messages and messages[-1]["role"] == "assistant" else None


def chat_content(content: object, path: str) -> object:
    """Content as a chat has it: text, parts, or null; a single text part is written as text."""
    if content is None or isinstance(content, str):
        return content
    parts = [_chat_part(part, at) for at, part in object_items(content, path)]
    if not parts:
        return ""
    only = parts[0]
    return only["text"] if len(parts) == 1 and only.get("type") == "text" else parts


def _chat_part(part: Mapping[str, object], path: str) -> dict[str, object]:
    match part.get("type"):
        case kind if kind in _TEXT_PARTS:
            return {"type": "text", "text": text_field(part, "text", path)}
        case "refusal":
            return {"type": "refusal", "refusal": text_field(part, "refusal", path)}
        case "input_image" if isinstance(part.get("image_url"), str):
            image = {"url": part["image_url"]}
            if part.get("detail") is not None:
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_file" if part.get("file_data") is not None or part.get("file_id") is not None:
            keys = ("file_data", "file_id", "filename")
            return {"type": "file", "file": {key: part[key] for key in keys if part.get(key) is not None}}
        case str() | None:
            return dict(part)
        case _:
            raise BadRequest(f"Expected `str` - at `{path}.type`", param=f"{path}.type")


def _joined_text(parts: object, path: str) -> str:
    return "\n".join(text_field(part, "text", at) for at, part in object_items(parts, path))
