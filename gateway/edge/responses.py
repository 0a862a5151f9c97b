"""The Responses dialect of the OpenAI API, said in chat completions.

    instructions, input (items)        -> messages                          (responses_items)
    tools, tool_choice                 -> tools, tool_choice                (responses_tools)
    max_output_tokens                  -> max_tokens
    reasoning.effort                   -> reasoning_effort
    text.format, text.verbosity        -> response_format, verbosity
    include: output_text.logprobs      -> logprobs, top_logprobs
    stream                             -> stream, stream_options.include_usage
    store, include, truncation, ...    -> nothing: only the Responses API has them
    anything else                      -> itself: sampling, user, metadata, what one server alone knows

The form is the one that vLLM makes of a request to its own Responses route, because it also tells which tokens that
route will see. The way back is in `responses_answer` (whole) and `responses_stream`.
"""

import time
from collections.abc import Callable, Mapping

from gateway.edge.chat_answer import new_name
from gateway.edge.responses_answer import Echo
from gateway.edge.responses_items import MESSAGE_KINDS, chat_messages, continues_last, kind_of
from gateway.edge.responses_stream import ResponsesAnswer
from gateway.edge.responses_tools import ToolNames, chat_tool_choice, chat_tools, unservable_choice, unservable_tool
from gateway.errors import BadRequest

_ONLY_IN_RESPONSES = frozenset(
    {
        "access_programs",
        "background",
        "background_options",
        "context_management",
        "conversation",
        "enable_response_messages",
        "image",
        "include",
        "max_tool_calls",
        "previous_input_messages",
        "previous_response_id",
        "prompt",
        "store",
        "truncation",
    }
)
_REPLACED = frozenset(
    {
        "input",
        "instructions",
        "max_output_tokens",
        "parallel_tool_calls",
        "reasoning",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
_ANOTHER_ANSWER = frozenset({"best_of", "function_call", "functions", "messages", "n"})
"""Fields of chats that would ask for another answer than this dialect has: several, all billed and one seen, or calls
in a form that is not read."""

_LEFT_OUT = _ONLY_IN_RESPONSES | _REPLACED | _ANOTHER_ANSWER
_OUTPUT_LOGPROBS = "message.output_text.logprobs"
KEPT_BY_SERVER = ("previous_response_id", "conversation", "prompt", "previous_input_messages")
"""Fields that stand for text which is not in the body."""


class ResponsesTranslation:
    """Responses as chats; keeps nothing. `clock` (Unix seconds) and `new_name` serve answers that lack time or id."""

    def __init__(self, clock: Callable[[], float] = time.time, new_name: Callable[[], str] = new_name) -> None:
        self._clock = clock
        self._new_name = new_name

    def chat_form(self, body: Mapping[str, object]) -> dict[str, object]:
        """The chat that asks the same. Raises `BadRequest`, which names the field. Linear in the body."""
        form = {name: value for name, value in body.items() if name not in _LEFT_OUT}
        form["messages"] = chat_messages(body.get("instructions"), _input(body))
        if continues_last(body.get("input")):
            form |= {"add_generation_prompt": False, "continue_final_message": True}
        form |= _tool_fields(body) | _text_fields(body) | _logprob_fields(body)
        if (limit := body.get("max_output_tokens")) is not None:
            form["max_tokens"] = _count(limit, "max_output_tokens")
        reasoning = _object(body, "reasoning")
        if (effort := reasoning.get("effort")) is not None:
            form["reasoning_effort"] = effort
        if body.get("stream"):
            form["stream_options"] = {"include_usage": True}
        return form

    def untranslatable(self, body: Mapping[str, object]) -> str | None:
        """The path of what no server of chats can serve; see `untranslatable`."""
        return untranslatable(body)

    def translator(self, body: Mapping[str, object]) -> ResponsesAnswer:
        """For the answer to the request with this body."""
        return ResponsesAnswer(Echo(body, self._clock, self._new_name))


def untranslatable(body: Mapping[str, object]) -> str | None:
    """The path of what no server of chats can serve: stored state, background work, tools of the server's own.

    None where there is nothing of the kind. Linear in items and tools; does not look into them.
    """
    for name in KEPT_BY_SERVER:
        if body.get(name) is not None:
            return name
    if body.get("background"):
        return "background"
    return (
        unservable_tool(body.get("tools"))
        or unservable_choice(body.get("tool_choice"))
        or _unservable_item(body.get("input"))
    )


def _unservable_item(given: object) -> str | None:
    for index, item in enumerate(given if isinstance(given, list) else []):
        if isinstance(item, dict) and (kind := kind_of(item)) is not None and kind not in MESSAGE_KINDS:
            return f"input[{index}].type"
    return None


def _input(body: Mapping[str, object]) -> object:
    given = body.get("input")
    if given is None and all(body.get(name) is None for name in KEPT_BY_SERVER):
        raise BadRequest("Object missing required field `input`", param="input")
    if given is not None and not isinstance(given, str | list):
        raise BadRequest("Expected `str | array` - at `input`", param="input")
    return given


def _tool_fields(body: Mapping[str, object]) -> dict[str, object]:
    """Chat servers refuse an empty list of tools, and wishes about tools where there are none."""
    tools = chat_tools(body.get("tools"))
    choice = chat_tool_choice(body.get("tool_choice"), ToolNames(body.get("tools")))
    fields: dict[str, object] = {}
    if tools:
        fields["tools"] = tools
        if (parallel := body.get("parallel_tool_calls")) is not None:
            fields["parallel_tool_calls"] = parallel
    if choice is not None and (tools or choice not in ("auto", "none")):
        fields["tool_choice"] = choice
    return fields


def _text_fields(body: Mapping[str, object]) -> dict[str, object]:
    text = _object(body, "text")
    fields: dict[str, object] = {}
    if (verbosity := text.get("verbosity")) is not None:
        fields["verbosity"] = verbosity
    form = _object(text, "format", "text.format")
    match form.get("type"):
        case None | "text":
            pass
        case "json_schema":
            schema = {key: value for key, value in form.items() if key != "type"}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        case _:
            fields["response_format"] = form
    return fields


def _logprob_fields(body: Mapping[str, object]) -> dict[str, object]:
    include = body.get("include")
    if not isinstance(include, list) or _OUTPUT_LOGPROBS not in include:
        return {}
    count = body.get("top_logprobs")
    return {"logprobs": True} if count is None else {"logprobs": True, "top_logprobs": count}


def _object(holder: Mapping[str, object], name: str, path: str | None = None) -> dict[str, object]:
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadRequest(f"Expected `object | null` - at `{path or name}`", param=path or name)
    return value or {}


def _count(value: object, path: str) -> int:
    if type(value) is not int or value < 0:
        raise BadRequest(f"Expected `int` >= 0 - at `{path}`", param=path)
    return value
