"""Client messages to the messages a chat template sees.

Between the wire and the template every engine tidies up. What is done here is what vLLM does (and others nearly so):

    content: null            ->  "" or no parts
    content: [text, text]    ->  joined with a newline, or kept as parts, as the template wants
    arguments: "{...}"       ->  the object itself, keys in the client's order; anything else becomes {}
    tool_calls: []           ->  left out
    reasoning_content        ->  `reasoning` and `reasoning_content`, on assistant messages
    anything else            ->  dropped, but for `name`, `tool_call_id` and `task`

Parts that are not text cannot be rendered here, since an engine puts a number of tokens in their place that depends on
the model and the picture: `UnsupportedContent`.

Nothing the client sent is changed: new objects are made where something differs. Linear in the messages.
"""

import json
from collections.abc import Sequence

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.types import ContentFormat, Json, Renderer, Unsupported

_TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Part types that are text, and where they keep it."""

_MEDIA = {
    "image": Unsupported.IMAGE,
    "image_url": Unsupported.IMAGE,
    "input_image": Unsupported.IMAGE,
    "image_pil": Unsupported.IMAGE,
    "image_embeds": Unsupported.EMBEDS,
    "audio_embeds": Unsupported.EMBEDS,
    "video_embeds": Unsupported.EMBEDS,
    "prompt_embeds": Unsupported.EMBEDS,
    "input_audio": Unsupported.AUDIO,
    "audio_url": Unsupported.AUDIO,
    "video": Unsupported.VIDEO,
    "video_url": Unsupported.VIDEO,
    "file": Unsupported.FILE,
    "input_file": Unsupported.FILE,
}

_VOLATILE_SYSTEM_LINE = "x-anthropic-billing-header"
"""First line of some agents' system prompts; it differs in every request and vLLM drops it."""


def template_messages(messages: Sequence[object], wanted: ContentFormat, renderer: Renderer) -> list[Json]:
    """`messages` as the template sees them.

    Raises `TemplateFailed` for what no engine accepts (an entry that is not an object or has no role), and
    `UnsupportedContent` for parts that are not text.
    """
    return [_template_message(message, wanted, renderer) for message in messages]


def developer_as_system(messages: list[Json]) -> list[Json]:
    """Messages for a template without the role `developer`: all system text in one first message, as vLLM does."""
    if not any(message["role"] == "developer" for message in messages):
        return messages
    system = [_plain_text(message["content"]) for message in messages if message["role"] in ("system", "developer")]
    others = [message for message in messages if message["role"] not in ("system", "developer")]
    if len(system) == 1 and messages[0]["role"] == "developer":
        first = {key: value for key, value in messages[0].items() if key != "tools"}
        return [{**first, "role": "system"}, *others]
    return [{"role": "system", "content": "\n\n".join(text for text in system if text)}, *others]


def template_tools(tools: Sequence[object], renderer: Renderer) -> list[object]:
    """`tools` as the template sees them."""
    if renderer is Renderer.PLAIN:
        return list(tools)
    return [_tool_of_vllm(tool) for tool in tools]


def _template_message(message: object, wanted: ContentFormat, renderer: Renderer) -> dict[str, object]:
    if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
        raise TemplateFailed("each message must be an object with a role")
    parts = _text_parts(message.get("content"))
    if role == "system" and renderer is Renderer.VLLM:
        parts = [kept for part in parts if (kept := _without_volatile_line(part)) is not None]
    seen: dict[str, object] = {"role": role, "content": _content(parts, wanted, role)}
    if role == "assistant":
        _add_assistant_fields(seen, message, renderer)
    elif role == "tool" and "tool_call_id" in message:
        seen["tool_call_id"] = message["tool_call_id"]
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            seen[key] = message[key]
    if role == "developer":
        seen["tools"] = message.get("tools")
    return seen


def _text_parts(content: object) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise TemplateFailed("message content must be text or a list of parts")
    return [text for part in content if (text := _part_text(part)) is not None]


def _part_text(part: object) -> str | None:
    """The text of one part; `None` for a text part without."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise TemplateFailed("each content part must be an object")
    kind = part.get("type")
    # A part with a `uuid` is media from an engine's own store, whatever its type says.
    if not isinstance(kind, str) or kind not in _TEXT_KEYS or part.get("uuid") is not None:
        raise UnsupportedContent(_kind_of(kind, part))
    text = part.get(_TEXT_KEYS[kind])
    if text is not None and not isinstance(text, str):
        raise TemplateFailed("the text of a content part must be a string")
    return text


def _kind_of(kind: object, part: Json) -> Unsupported:
    named = (kind, *part)
    return next((_MEDIA[name] for name in named if isinstance(name, str) and name in _MEDIA), Unsupported.OTHER_PART)


def _content(parts: list[str], wanted: ContentFormat, role: str) -> object:
    if wanted is ContentFormat.STRING:
        return "\n".join(filter(None, parts))
    if role == "tool":
        # Most templates that walk the parts of others still expect text from tools.
        return "\n".join(parts)
    return [{"type": "text", "text": text} for text in parts]


def _without_volatile_line(text: str) -> str | None:
    if not text.startswith(_VOLATILE_SYSTEM_LINE):
        return text
    return text.partition("\n")[2] or None


def _add_assistant_fields(seen: dict[str, object], message: Json, renderer: Renderer) -> None:
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        seen["tool_calls"] = [_tool_call(call, renderer) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        seen["reasoning"] = seen["reasoning_content"] = reasoning


def _tool_call(call: object, renderer: Renderer) -> dict[str, object]:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        raise TemplateFailed("each tool call must be an object with a function")
    parsed = {**function, "arguments": _arguments(function.get("arguments"))}
    if renderer is Renderer.PLAIN:
        return {**call, "function": parsed}
    parsed = {key: parsed[key] for key in ("arguments", "name") if key in parsed}
    return {key: parsed if key == "function" else call[key] for key in ("id", "function", "type") if key in call}


def _arguments(arguments: object) -> dict[str, object]:
    """What a tool was called with; engines replace what is no JSON object by an empty one."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _tool_of_vllm(tool: object) -> dict[str, object]:
    if not isinstance(tool, dict) or not isinstance(function := tool.get("function"), dict):
        raise TemplateFailed("each tool must be an object with a function")
    deferred = tool.get("defer_loading")
    written: dict[str, object] = {key: function.get(key) for key in ("name", "description", "parameters")}
    optional = {"strict": function.get("strict"), "defer_loading": function.get("defer_loading", deferred)}
    written |= {key: value for key, value in optional.items() if value is not None}
    outer: dict[str, object] = {"type": tool.get("type", "function"), "function": written}
    return outer if deferred is None else {**outer, "defer_loading": deferred}


def _plain_text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    assert isinstance(content, str)
    return content
