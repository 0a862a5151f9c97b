"""Chats as TensorRT-LLM and TGI give them to a template.

    TensorRT-LLM   texts joined with a newline, or parts; arguments of tool calls as objects, what is no JSON stays
                   text; `name` is dropped, reasoning has its older name only
    TGI (3)        parts joined with nothing between; tools and calls are written in its own words: not known here

Facts from their serving code.
"""

from collections.abc import Sequence

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_fields import arguments_of, function_of, role_of
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.content import LINES, Joining, as_parts, as_text, parts_of
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.types import Clock, ContentFormat, Json, PromptView, Unsupported
from prefix_index.prompt.vllm_chat import vllm_tool

_UNSEPARATED = Joining(glue="", media_glue="")


def trtllm_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
    """The text of a chat as TensorRT-LLM renders it. Raises `TemplateFailed` or `UnsupportedContent`."""
    messages = [_trtllm_message(message, template.content_format, marks) for message in view.messages or ()]
    variables = {
        **view.template_kwargs,
        "tools": None if view.tools is None else [vllm_tool(tool) for tool in view.tools],
        "documents": view.documents,
        "add_generation_prompt": view.add_generation_prompt,
    }
    return template.render(messages, variables, continue_final_message=view.continue_final_message, now=now)


def tgi_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
    """The text of a chat as TGI renders it. Raises `TemplateFailed`, or `UnsupportedContent` where there are tools."""
    if view.tools:
        raise UnsupportedContent(Unsupported.TOOLS)
    messages = tgi_messages(view.messages or (), marks)
    return template.render(messages, {"add_generation_prompt": True}, now=now)


def tgi_messages(messages: Sequence[object], marks: MediaMarks) -> list[Json]:
    """`messages` as the template sees them: a role and a text each."""
    return [_tgi_message(message, marks) for message in messages]


def _tgi_message(message: object, marks: MediaMarks) -> Json:
    message, role = role_of(message)
    if message.get("tool_calls"):
        raise UnsupportedContent(Unsupported.TOOLS)
    return {"role": role, "content": as_text(parts_of(message.get("content")), _UNSEPARATED, marks)}


def _trtllm_message(message: object, wanted: ContentFormat, marks: MediaMarks) -> Json:
    message, role = role_of(message)
    parts = parts_of(message.get("content"))
    content = as_text(parts, LINES, marks) if wanted is ContentFormat.STRING else as_parts(parts, marks)
    seen: dict[str, object] = {"role": role, "content": content}
    if role == "assistant":
        reasoning = message.get("reasoning")
        reasoning = message.get("reasoning_content") if reasoning is None else reasoning
        if reasoning is not None:
            seen["reasoning_content"] = reasoning
        if isinstance(calls := message.get("tool_calls"), list):
            seen["tool_calls"] = [_trtllm_call(call) for call in calls]
    elif role == "tool" and "tool_call_id" in message:
        seen["tool_call_id"] = message["tool_call_id"]
    elif role == "system" and message.get("tools") is not None:
        seen["tools"] = message["tools"]
    return seen


def _trtllm_call(call: object) -> Json:
    function = function_of(call, "tool call")
    assert isinstance(call, dict), "it has a function"
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: object) -> object:
    if arguments is None:
        return {}
    try:
        found = arguments_of(arguments)
    except ValueError:
        return arguments
    if not isinstance(found, dict):
        raise TemplateFailed("arguments of a tool call must be an object")
    return found
