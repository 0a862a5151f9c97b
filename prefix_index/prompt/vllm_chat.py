"""Chats as vLLM (0.32) gives them to a template; others tidy up nearly so.

    content                  ->  text, or parts where the template walks them (content.py); tools' answers are text
    arguments: "{...}"       ->  the object itself, keys in the client's order; anything else becomes {}
    tool_calls: []           ->  left out
    reasoning_content        ->  `reasoning` and `reasoning_content`, on assistant messages
    anything else            ->  dropped, but for `name`, `tool_call_id` and `task`

Nothing the client sent is changed: new objects are made. Linear in the messages, under 1 µs for one of plain text.
"""

from collections.abc import Sequence

from prefix_index.prompt.chat_fields import function_of, parsed_arguments, role_of
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import LINES, Part, as_parts, as_text, parts_of
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.types import Clock, ContentFormat, Json, PromptView

_VOLATILE_SYSTEM_LINE = "x-anthropic-billing-header"
"""First line of some agents' system prompts; it differs in every request and vLLM drops it."""

_NAMES = ("name", "task")
_KEYS = ("name", "description", "parameters", "strict")


def vllm_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
    """The text of a chat. Raises `TemplateFailed` or `UnsupportedContent`."""
    messages = vllm_messages(view.messages or (), template.content_format, marks)
    if not template.knows_developer:
        messages = developer_as_system(messages)
    # Template arguments give way to fields of the request, but only to those that are given.
    variables: dict[str, object] = {"tools": None, "documents": None, **view.template_kwargs}
    variables["add_generation_prompt"] = view.add_generation_prompt
    if view.tools is not None:
        variables["tools"] = [vllm_tool(tool) for tool in view.tools]
    if view.documents is not None:
        variables["documents"] = view.documents
    if view.reasoning_effort is not None:
        variables["reasoning_effort"] = view.reasoning_effort
        variables.setdefault("enable_thinking", view.reasoning_effort != "none")
    return template.render(messages, variables, continue_final_message=view.continue_final_message, now=now)


def vllm_messages(messages: Sequence[object], wanted: ContentFormat, marks: MediaMarks) -> list[Json]:
    """`messages` as the template sees them.

    Raises `TemplateFailed` for what no engine accepts (an entry that is not an object or has no role), and
    `UnsupportedContent` for parts that are neither text nor media.
    """
    return [_message(message, wanted, marks) for message in messages]


def developer_as_system(messages: list[Json]) -> list[Json]:
    """Messages for a template without the role `developer`: all system text in one first message."""
    if not any(message["role"] == "developer" for message in messages):
        return messages
    system = [_plain_text(message["content"]) for message in messages if message["role"] in ("system", "developer")]
    others = [message for message in messages if message["role"] not in ("system", "developer")]
    if len(system) == 1 and messages[0]["role"] == "developer":
        first = {key: value for key, value in messages[0].items() if key != "tools"}
        return [{**first, "role": "system"}, *others]
    return [{"role": "system", "content": "\n\n".join(text for text in system if text)}, *others]


def vllm_tool(tool: object) -> dict[str, object]:
    """One tool, read into a model and written out again. Raises `TemplateFailed` where it has no function."""
    function = function_of(tool, "tool")
    assert isinstance(tool, dict), "it has a function"
    deferred = tool.get("defer_loading")
    written: dict[str, object] = {key: function.get(key) for key in ("name", "description", "parameters")}
    optional = {"strict": function.get("strict"), "defer_loading": function.get("defer_loading", deferred)}
    written |= {key: value for key, value in optional.items() if value is not None}
    outer: dict[str, object] = {"type": tool.get("type", "function"), "function": written}
    return outer if deferred is None else {**outer, "defer_loading": deferred}


def _message(message: object, wanted: ContentFormat, marks: MediaMarks) -> dict[str, object]:
    message, role = role_of(message)
    content = message.get("content")
    seen: dict[str, object] = {"role": role, "content": content}
    if type(content) is not str or role == "system":
        seen["content"] = _content(content, role, wanted, marks)
    elif wanted is ContentFormat.PARTS and role != "tool":
        seen["content"] = [{"type": "text", "text": content}]
    if role == "assistant":
        _add_assistant_fields(seen, message)
    elif role == "tool" and "tool_call_id" in message:
        seen["tool_call_id"] = message["tool_call_id"]
    if len(message) > 2 or content is None:
        for key in _NAMES:
            if isinstance(message.get(key), str):
                seen[key] = message[key]
    if role == "developer":
        seen["tools"] = _developer_tools(message.get("tools"))
    return seen


def _developer_tools(tools: object) -> object:
    """Read into a model where all of them fit it, which puts its keys first; else as the client sent them."""
    if not isinstance(tools, list) or not all(map(_fits_model, tools)):
        return tools
    return [
        _keys_first(tool | {"function": _keys_first(tool["function"], *_KEYS)}, "function", "type") for tool in tools
    ]


def _fits_model(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("description", ""), str)
        and isinstance(function.get("parameters", {}), dict)
        and isinstance(function.get("strict"), bool | None)
    )


def _keys_first(value: dict[str, object], *keys: str) -> dict[str, object]:
    return {key: value[key] for key in keys if key in value} | value


def _content(content: object, role: str, wanted: ContentFormat, marks: MediaMarks) -> object:
    parts = parts_of(content)
    if role == "system":
        parts = [kept for part in parts if (kept := _without_volatile_line(part)) is not None]
    if wanted is ContentFormat.STRING:
        return as_text(parts, LINES, marks)
    if role == "tool" and all(isinstance(part, str) for part in parts):
        # Most templates that walk the parts of others still expect text from tools.
        return "\n".join(part for part in parts if isinstance(part, str))
    return as_parts(parts, marks, with_fields=True)


def _without_volatile_line(part: Part) -> Part | None:
    if not isinstance(part, str) or not part.startswith(_VOLATILE_SYSTEM_LINE):
        return part
    return part.partition("\n")[2] or None


def _add_assistant_fields(seen: dict[str, object], message: Json) -> None:
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        seen["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        seen["reasoning"] = seen["reasoning_content"] = reasoning


def _tool_call(call: object) -> dict[str, object]:
    function = function_of(call, "tool call")
    assert isinstance(call, dict), "it has a function"
    parsed: dict[str, object] = {"arguments": parsed_arguments(function.get("arguments"))}
    if "name" in function:
        parsed["name"] = function["name"]
    return {key: parsed if key == "function" else call[key] for key in ("id", "function", "type") if key in call}


def _plain_text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if "text" in part)
    assert isinstance(content, str), "content is text or parts"
    return content
