"""Chats as llama.cpp's server gives them to a template.

Templates are tried out with small chats, and what they do not take is put in a form they do take (`Abilities`):

    content: [text]     ->  as it is where parts are read and text is not, or both; else joined with a newline
    content: "text"     ->  one part where only parts are read
    with media          ->  text, media in their place with nothing around
    arguments: "{...}"  ->  an object, where the template looks into one; else the text
    system, not read    ->  joined to the message after it
    developer           ->  system
    any message         ->  role, content, reasoning_content, name, tool_call_id, tool_calls, in this order
    last: assistant     ->  continued: its text follows the prompt of what was before (not known where models think)
    tools               ->  name, description ("" for none), parameters

How values are written: llamacpp_language.py. Variables besides: `enable_thinking` (true where the template can),
`date_string` and `datetime`. Absent ones are undefined, not null.
Facts from its `common/chat.cpp`, `common/jinja/caps.cpp` and server. Special handlers it has for single families of
models are not followed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_fields import arguments_of, function_of, role_of
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import Joining, Part, as_parts, as_text, parts_of
from prefix_index.prompt.media import Media, MediaMarks
from prefix_index.prompt.types import Clock, ContentFormat, Json, PromptView, Unsupported

_JOINING = Joining(keeps_empty=True, media_glue="")
_CONTINUED = Joining(glue="\n\n", keeps_empty=True, media_glue="\n\n")
_HARMONY = "<|channel|>"
_PROBE = "PROBED_TEXT"
_PROBE_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template takes: text or parts as content, a system role, arguments of tool calls as objects.

    `thinking`: it shows what an answer thought, or asks whether the next may think.
    """

    text: bool
    parts: bool
    system: bool
    object_arguments: bool
    thinking: bool


def abilities_of(template: ChatTemplate) -> Abilities:
    """Try a template out: six renders of small chats. Never raises; what fails is not taken."""
    wants_parts = template.content_format is ContentFormat.PARTS
    user = {"role": "user", "content": _PROBE}
    alone = _tried(template, [user])
    takes_text = alone is not None and (not wants_parts or _PROBE in alone)
    probed: object = _PROBE if takes_text or not wants_parts else [{"type": "text", "text": _PROBE}]
    system = _tried(template, [{"role": "system", "content": probed}, {**user, "content": "x"}])
    function = {"name": "f", "arguments": {"probed": _PROBE}}
    call = {"type": "function", "function": function, "id": "call00001"}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    tool = {"role": "tool", "content": "x", "tool_call_id": "call00001"}
    called = _tried(template, [{**user, "content": "x"}, answer, tool, {"role": "assistant", "content": "x"}])
    thought = {"role": "assistant", "content": "x", "reasoning_content": _PROBE}
    shown = _tried(template, [{**user, "content": "x"}, thought])
    may, may_not = (_tried(template, [user], enable_thinking=answer) for answer in (True, False))
    return Abilities(
        text=takes_text,
        parts=wants_parts,
        system=_shows(system),
        object_arguments=_shows(called),
        thinking=_shows(shown) or may != may_not,
    )


def llamacpp_text(
    view: PromptView, template: ChatTemplate, abilities: Abilities, now: Clock | None, marks: MediaMarks
) -> str:
    """The text of a chat. Raises `TemplateFailed` or `UnsupportedContent`."""
    before, answer = _last_answer(view)
    if answer is not None and abilities.thinking:
        # It is put behind an empty thought, in marks that llama.cpp finds by comparing many renders.
        raise UnsupportedContent(Unsupported.CUSTOM_ENCODER)
    messages = [_message(message, abilities, marks) for message in before]
    if _HARMONY not in template.source:
        messages = [{**one, "role": "system"} if one["role"] == "developer" else one for one in messages]
    if not abilities.system:
        messages = _without_system(messages)
    variables = _variables(view, abilities, now)
    if view.add_generation_prompt or answer is not None:
        variables["add_generation_prompt"] = True
    text = template.render(messages, variables, now=now)
    return text if answer is None else text + as_text(answer, _CONTINUED, marks)


def llamacpp_tool(tool: object) -> Json:
    """One tool, read and written out again. Raises `TemplateFailed` where it has no function."""
    function = function_of(tool, "tool")
    written = {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "parameters": function.get("parameters", {}),
    }
    return {"type": "function", "function": written}


def _shows(text: str | None) -> bool:
    return text is not None and _PROBE in text


def _tried(template: ChatTemplate, messages: Sequence[Json], **more: object) -> str | None:
    parameters = {"type": "object", "properties": {"probed": {"type": "string", "description": "x"}}}
    tool = llamacpp_tool({"function": {"name": "f", "description": "x", "parameters": parameters}})
    try:
        return template.render(
            messages, {"tools": [tool], "add_generation_prompt": True, **more},
            now=lambda: _PROBE_TIME,
        )  # fmt: skip
    except TemplateFailed:
        return None


def _message(message: object, abilities: Abilities, marks: MediaMarks) -> dict[str, object]:
    message, role = role_of(message)
    seen: dict[str, object] = {"role": role, "content": _content(message.get("content"), abilities, marks)}
    if len(message) > 2 or "content" not in message:
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
        return arguments_of(arguments)
    except ValueError:
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


def _last_answer(view: PromptView) -> tuple[Sequence[object], list[Part] | None]:
    """The messages that the template gets, and the parts of an answer at their end, which is continued."""
    messages: Sequence[object] = view.messages or ()
    last, role = role_of(messages[-1]) if messages else ({}, "")
    if role != "assistant":
        if view.continue_final_message:
            raise TemplateFailed("there is no final answer to continue")
        return messages, None
    if last.get("tool_calls"):
        raise TemplateFailed("a final answer with tool calls cannot be continued")
    return messages[:-1], parts_of(last.get("content"))


def _variables(view: PromptView, abilities: Abilities, now: Clock | None) -> dict[str, object]:
    variables: dict[str, object] = {"enable_thinking": abilities.thinking}
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
