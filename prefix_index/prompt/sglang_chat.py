"""Chats as SGLang (0.5) gives them to a template.

    content: "text"     ->  text, even where the template walks parts
    content: [text]     ->  parts, or texts joined with a space; tools' answers joined with a space
    any message         ->  read into a model: role, content, tool_call_id, name, reasoning_content, tool_calls, tools
    last: assistant     ->  spoken by the user, unless it is to be continued: then its text follows the whole prompt
    tools               ->  read into models; tried again without their wrapper where the template refuses them

A template that names images, audio or video anywhere counts as one that walks parts. Documents are not passed on.
Facts from its serving code and wire models.
"""

from collections.abc import Sequence

from prefix_index.errors import TemplateFailed
from prefix_index.prompt.chat_fields import function_of, parsed_arguments, role_of
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import Joining, as_parts, as_text, parts_of
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.types import Clock, ContentFormat, Json, PromptView

_JOINING = Joining(glue=" ", keeps_empty=True, media_glue="\n")
_FIELDS = ("tool_call_id", "name", "reasoning_content", "tool_calls", "tools")
"""In the order in which the model has them; messages of users have none of them."""


def sglang_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
    """The text of a chat. Raises `TemplateFailed` or `UnsupportedContent`."""
    messages = sglang_messages(view.messages or (), template.content_format_of_names, marks)
    messages, continued = _last_answer(messages, view.continue_final_message)
    tools = None if view.tools is None else [sglang_tool(tool) for tool in view.tools]
    variables: dict[str, object] = {}
    if view.reasoning_effort is not None:
        variables["reasoning_effort"] = view.reasoning_effort
        if view.reasoning_effort == "none":
            variables |= {"thinking": False, "enable_thinking": False}
    variables |= view.template_kwargs
    variables |= {"documents": None, "add_generation_prompt": True}
    try:
        return template.render(messages, {**variables, "tools": tools}, now=now) + continued
    except TemplateFailed:
        if not tools:
            raise
    bare = [tool["function"] for tool in tools]
    return template.render(messages, {**variables, "tools": bare}, now=now) + continued


def sglang_messages(messages: Sequence[object], wanted: ContentFormat, marks: MediaMarks) -> list[Json]:
    """`messages` as the template sees them; raises as `vllm_messages` does."""
    return [_message(message, wanted, marks) for message in messages]


def sglang_tool(tool: object) -> dict[str, object]:
    """One tool, read into a model and written out again. Raises `TemplateFailed` where it has no function."""
    function = function_of(tool, "tool")
    assert isinstance(tool, dict), "it has a function"
    deferred = tool.get("defer_loading")
    written: dict[str, object] = {key: function.get(key) for key in ("description", "name", "parameters")}
    written["strict"] = function.get("strict") or False
    if (inner := function.get("defer_loading", deferred)) is not None:
        written["defer_loading"] = inner
    outer: dict[str, object] = {"type": tool.get("type", "function"), "function": written}
    return outer if deferred is None else {**outer, "defer_loading": deferred}


def _message(message: object, wanted: ContentFormat, marks: MediaMarks) -> dict[str, object]:
    message, role = role_of(message)
    content = message.get("content")
    seen: dict[str, object] = {"role": role.lower(), "content": "" if content is None else content}
    if type(content) is not str and content is not None:
        parts = parts_of(content)
        text_only = wanted is ContentFormat.STRING or (role == "tool" and all(isinstance(part, str) for part in parts))
        seen["content"] = as_text(parts, _JOINING, marks) if text_only else as_parts(parts, marks)
    if role != "user" and (len(message) > 2 or content is None):
        for key in _FIELDS:
            if message.get(key) is not None:
                seen[key] = message[key]
        if isinstance(calls := seen.get("tool_calls"), list):
            seen["tool_calls"] = [_tool_call(call) for call in calls]
    return seen


def _last_answer(messages: list[Json], to_continue: bool) -> tuple[list[Json], str]:
    """What the template gets of a chat that ends with an answer, and what follows the prompt."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    if last.get("role") != "assistant" or not isinstance(content, str):
        return messages, ""
    if to_continue:
        return messages[:-1], content
    return [*messages[:-1], {"role": "user", "content": content}], ""


def _tool_call(call: object) -> Json:
    function = function_of(call, "tool call")
    assert isinstance(call, dict), "it has a function"
    arguments = function.get("arguments")
    parsed = None if arguments is None else parsed_arguments(arguments)
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call.get("type", "function"),
        "function": {"name": function.get("name"), "arguments": parsed},
    }
