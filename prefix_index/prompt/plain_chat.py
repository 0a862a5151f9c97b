"""Chats as the project's reference engine gives them to a template: text, and the rest as the client sent it.

content            ->  text, whatever the template wants: parts joined with a newline
arguments: "{...}" ->  the object itself; anything else becomes {}
anything else      ->  as it is
"""

from collections.abc import Sequence

from prefix_index.prompt.chat_fields import function_of, parsed_arguments, role_of
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import Joining, as_text, parts_of
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.types import Clock, Json, PromptView

_JOINING = Joining()


def plain_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
    """The text of a chat. Raises `TemplateFailed` or `UnsupportedContent`."""
    variables = dict(view.template_kwargs)
    if view.reasoning_effort is not None:
        variables["reasoning_effort"] = view.reasoning_effort
    variables |= {
        "tools": view.tools,
        "documents": view.documents,
        "add_generation_prompt": view.add_generation_prompt,
    }
    messages = plain_messages(view.messages or (), marks)
    return template.render(messages, variables, continue_final_message=view.continue_final_message, now=now)


def plain_messages(messages: Sequence[object], marks: MediaMarks) -> list[Json]:
    """`messages` as the template sees them; raises as `vllm_messages` does."""
    return [_message(message, marks) for message in messages]


def _message(message: object, marks: MediaMarks) -> Json:
    message, _ = role_of(message)
    content, calls = message.get("content"), message.get("tool_calls")
    if type(content) is str and not calls:
        return message
    seen = {**message, "content": as_text(parts_of(content), _JOINING, marks)}
    if isinstance(calls, list):
        seen["tool_calls"] = [_tool_call(call) for call in calls]
    return seen


def _tool_call(call: object) -> Json:
    function = function_of(call, "tool call")
    assert isinstance(call, dict), "it has a function"
    return {**call, "function": {**function, "arguments": parsed_arguments(function.get("arguments"))}}
