"""Chats as llama.cpp's server gives them to a template.

Templates are tried out with small chats, and what they do not take is put in a form they do take (`Abilities`):

    content: [text]     ->  as it is where parts are read and text is not, or both; else joined with a newline
    content: "text"     ->  one part where only parts are read
    with media          ->  text, media in their place with nothing around
    arguments: "{...}"  ->  an object, where the template looks into one; else the text
    system, not read    ->  joined to the message after it
    developer           ->  system
    any message         ->  role, content, reasoning_content, name, tool_call_id, tool_calls, in this order
    last: assistant     ->  continued: its text follows the prompt of what was before
    tools               ->  name, description ("" for none), parameters

Variables besides: `enable_thinking` (true), `date_string` and `datetime`. Absent ones are undefined, not null.
Facts from its `common/chat.cpp`, `common/jinja/caps.cpp` and server. Special handlers it has for single families of
models are not followed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile

from prefix_index.errors import TemplateFailed
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import Joining, Part, as_parts, as_text, parts_of
from prefix_index.prompt.media import Media, MediaMarks
from prefix_index.prompt.types import Clock, ContentFormat, Json, PromptView
from prefix_index.prompt.vllm_chat import function_of, role_of

_JOINING = Joining(keeps_empty=True, media_glue="")
_HARMONY = "<|channel|>"
_PROBE = "PROBED_TEXT"
_PROBE_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template takes: text or parts as content, a system role, arguments of tool calls as objects."""

    text: bool
    parts: bool
    system: bool
    object_arguments: bool


def abilities_of(template: ChatTemplate) -> Abilities:
    """Try a template out: four renders of small chats. Never raises; what fails is not taken."""
    wants_parts = template.content_format is ContentFormat.PARTS
    user = {"role": "user", "content": _PROBE}
    alone = _tried(template, [user])
    system = _tried(template, [{"role": "system", "content": _PROBE}, {**user, "content": "x"}])
    if system is None and wants_parts:
        listed = [{"type": "text", "text": _PROBE}]
        system = _tried(template, [{"role": "system", "content": listed}, {**user, "content": listed}])
    function = {"name": "f", "arguments": {"probed": _PROBE}}
    call = {"type": "function", "function": function, "id": "call00001"}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    tool = {"role": "tool", "content": "x", "tool_call_id": "call00001"}
    called = _tried(template, [{**user, "content": "x"}, answer, tool, {"role": "assistant", "content": "x"}])
    return Abilities(
        text=alone is not None and (not wants_parts or _PROBE in alone),
        parts=wants_parts,
        system=system is None or _PROBE in system,
        object_arguments=called is not None and _PROBE in called,
    )


def llamacpp_text(
    view: PromptView, template: ChatTemplate, abilities: Abilities, now: Clock | None, marks: MediaMarks
) -> str:
    """The text of a chat. Raises `TemplateFailed` or `UnsupportedContent`."""
    messages = [_message(message, abilities, marks) for message in view.messages or ()]
    if _HARMONY not in template.source:
        messages = [{**one, "role": "system"} if one["role"] == "developer" else one for one in messages]
    if not abilities.system:
        messages = _without_system(messages)
    messages, continued, add_generation_prompt = _last_answer(messages, view)
    variables = _variables(view, now)
    if add_generation_prompt:
        variables["add_generation_prompt"] = True
    return template.render(messages, variables, now=now) + continued


def llamacpp_tool(tool: object) -> Json:
    """One tool, read and written out again. Raises `TemplateFailed` where it has no function."""
    function = function_of(tool, "tool")
    written = {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "parameters": function.get("parameters", {}),
    }
    return {"type": "function", "function": written}


def _tried(template: ChatTemplate, messages: Sequence[Json]) -> str | None:
    parameters = {"type": "object", "properties": {"probed": {"type": "string", "description": "x"}}}
    tool = llamacpp_tool({"function": {"name": "f", "description": "x", "parameters": parameters}})
    try:
        return template.render(
            messages, {"tools": [tool], "add_generation_prompt": True, "bos_token": "", "eos_token": ""},
            now=lambda: _PROBE_TIME,
        )  # fmt: skip
    except TemplateFailed:
        return None


def _message(message: object, abilities: Abilities, marks: MediaMarks) -> dict[str, object]:
    message, role = role_of(message)
    seen: dict[str, object] = {"role": role, "content": _content(message.get("content"), abilities, marks)}
    if len(message) > 2:
        for key in ("reasoning_content", "name", "tool_call_id"):
            if message.get(key):
                seen[key] = message[key]
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            seen["tool_calls"] = [_tool_call(call, abilities) for call in calls]
    return seen


def _content(content: object, abilities: Abilities, marks: MediaMarks) -> object:
    if type(content) is str and (abilities.text or not abilities.parts):
        return content
    parts = parts_of(content)
    has_media = any(isinstance(part, Media) for part in parts)
    if isinstance(content, list) and abilities.parts and parts and not has_media:
        return as_parts(parts, marks)
    text = as_text(_without_leading_empty(parts), _JOINING, marks)
    return text if abilities.text or not abilities.parts else [{"type": "text", "text": text}]


def _without_leading_empty(parts: Sequence[Part]) -> list[Part]:
    return list(dropwhile(lambda part: part == "", parts))


def _tool_call(call: object, abilities: Abilities) -> Json:
    function = function_of(call, "tool call")
    assert isinstance(call, dict), "it has a function"
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    seen = {"name": function.get("name"), "arguments": _parsed(arguments) if abilities.object_arguments else arguments}
    identity = {"id": call["id"]} if call.get("id") else {}
    return {"type": "function", "function": seen, **identity}


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        raise TemplateFailed("arguments of a tool call are no JSON") from None


def _without_system(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """A first system message becomes the beginning of the next."""
    if not messages or messages[0]["role"] != "system":
        return messages
    if len(messages) == 1:
        return []
    first, second = messages[0]["content"], messages[1]["content"]
    if not isinstance(first, str) or not isinstance(second, str):
        raise TemplateFailed("the template has no system role to give parts to")
    return [{**messages[1], "content": f"{first}\n{second}"}, *messages[2:]]


def _last_answer(messages: list[dict[str, object]], view: PromptView) -> tuple[list[dict[str, object]], str, bool]:
    """What the template gets of a chat that ends with an answer, what follows, and whether an answer is begun."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant":
        if view.continue_final_message:
            raise TemplateFailed("there is no final answer to continue")
        return messages, "", view.add_generation_prompt
    if "tool_calls" in last:
        raise TemplateFailed("a final answer with tool calls cannot be continued")
    content = last["content"]
    if not isinstance(content, str):
        content = (
            "\n".join(str(part["text"]) for part in content if "text" in part) if isinstance(content, list) else ""
        )
    return messages[:-1], content, True


def _variables(view: PromptView, now: Clock | None) -> dict[str, object]:
    variables: dict[str, object] = {"enable_thinking": True}
    if view.tools:
        variables["tools"] = [llamacpp_tool(tool) for tool in view.tools]
    if now is not None:
        today = now()
        variables |= {"datetime": today.strftime("%b %d %Y"), "date_string": today.strftime("%d %b %Y")}
    variables |= view.template_kwargs
    effort = view.reasoning_effort
    if effort == "none":
        variables["enable_thinking"] = False
    elif effort is not None:
        variables |= {"reasoning_effort": effort, "reasoning_strength": effort}
    return variables
