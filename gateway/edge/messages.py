"""The Messages dialect of Anthropic, said in chat completions.

    system                   -> a first message of role `system`, its text blocks joined
    user: text, image        -> text, or parts (a picture becomes an `image_url`, base64 a `data:` URL)
    user: tool_result        -> a message of role `tool` *before* what else that user says; pictures in it follow it
    assistant: tool_use      -> `tool_calls`, the input as JSON text
    assistant: thinking      -> `reasoning` (and `reasoning_content`, the older name of the same)
    tools: input_schema      -> functions with `parameters`
    tool_choice: auto | any | tool | none    -> auto | required | a named function | none
    thinking, output_config  -> reasoning_effort, thinking_token_budget, response_format

This is how vLLM 0.32 reads the dialect, step by step (`vllm/entrypoints/anthropic`), because the token ids of the chat
form must be those that vLLM's own endpoint computes: a block without text is no part, unknown keys of a message or a
block are dropped, a single text part becomes a string. Fields of the top level that the dialect does not know are a
server's own and pass, except those that would change a chat's prompt or answer but are nothing to a server of messages.
A model need not be named: where there is one only, the gateway takes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.edge.messages_answer import MessagesAnswer
from gateway.edge.messages_turn import converted, system_text, turn_messages, unsayable
from gateway.edge.translation import AnswerTranslator
from gateway.errors import BadRequest

_SPOKEN: Final = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "metadata",
        "output_config",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
_ONLY_ANTHROPIC: Final = frozenset(
    {"cache_control", "container", "context_management", "inference_geo", "mcp_servers", "service_tier"}
)
"""Of the dialect, but about Anthropic's own service: a chat server could only refuse them."""
_NOT_OF_MESSAGES: Final = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "best_of",
        "chat_template",
        "continue_final_message",
        "documents",
        "function_call",
        "functions",
        "n",
        "reasoning_effort",
        "stream_options",
    }
)
"""Chat fields that decide the prompt, or the form of the answer, or that there are several, all billed and one seen;
servers of messages take no notice of them."""
_KEPT_BY_ANTHROPIC: Final = ("mcp_servers", "container")
"""Fields that ask a server to reach for what it keeps or may call itself."""
_TAKEN: Final = _SPOKEN | _ONLY_ANTHROPIC | _NOT_OF_MESSAGES
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


class _Format(msgspec.Struct):
    schema: dict[str, Any] | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: _Format | None = None


class _Request(msgspec.Struct):
    """`model` may be absent where there is one only; `max_tokens` too: Anthropic and vLLM want it, llama.cpp does not,
    and a count of tokens has none."""

    messages: list[_Message]
    model: str | None = None
    max_tokens: int | None = None
    output_config: _OutputConfig | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    system: str | list[dict[str, Any]] | None = None
    thinking: _Thinking | None = None
    tool_choice: _ToolChoice | None = None
    tools: list[dict[str, Any]] | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _ToolChange(msgspec.Struct):
    type: str
    name: str | None = None
    definition: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MessagesTranslation:
    """`Translation` of `POST /v1/messages`; stateless.

    The two fields are what vLLM finds out about a model's chat template at its start. `merge_inline_system`: the
    template wants its system text first, so system messages between the others move there. `disabled_thinking_effort`:
    the `reasoning_effort` that turns thinking off, `low` for a template that knows no `none`.
    """

    merge_inline_system: bool = False
    disabled_thinking_effort: str = "none"

    def chat_form(self, body: Mapping[str, object]) -> dict[str, object]:
        """The chat completion that asks the same. Raises `BadRequest`; linear in the body, which is not changed."""
        request = converted(dict(body), _Request)
        form: dict[str, object] = {key: value for key, value in body.items() if key not in _TAKEN}
        form["messages"] = self._messages(request)
        for key in ("model", "max_tokens", "temperature", "top_p", "top_k"):
            if body.get(key) is not None:
                form[key] = body[key]
        if request.stop_sequences:
            form["stop"] = request.stop_sequences
        if request.stream:
            form |= {"stream": True, "stream_options": {"include_usage": True}}
        self._add_output_config(form, request)
        _add_tools(form, request)
        return form

    def untranslatable(self, body: Mapping[str, object]) -> str | None:
        """The path of what no chat can say, or that must be said for it; see `untranslatable`."""
        return untranslatable(body)

    def translator(self, body: Mapping[str, object]) -> AnswerTranslator:
        """For one answer to this body."""
        model = body.get("model")
        return MessagesAnswer(model if isinstance(model, str) else "")

    def _messages(self, request: _Request) -> list[dict[str, object]]:
        system = [_leading_system(request.system)]
        messages: list[dict[str, object]] = []
        for number, message in enumerate(request.messages):
            if message.role != "system":
                messages += turn_messages(message.role, message.content, f"messages[{number}].content")
                continue
            text = system_text(message.content)
            if self.merge_inline_system:
                system.append(text)
            elif text:
                messages.append({"role": "system", "content": text})
        leading = "".join(system)
        return [{"role": "system", "content": leading}, *messages] if leading else messages

    def _add_output_config(self, form: dict[str, object], request: _Request) -> None:
        config, thinking = request.output_config, request.thinking
        if config is not None and config.format is not None and config.format.schema:
            schema = {"name": "json_schema", "schema": config.format.schema}
            form["response_format"] = {"type": "json_schema", "json_schema": schema}
        if config is not None and config.effort is not None:
            form["reasoning_effort"] = config.effort
        if thinking is not None and thinking.type == "disabled":
            form["reasoning_effort"] = self.disabled_thinking_effort
        if thinking is not None and thinking.type == "enabled" and thinking.budget_tokens is not None:
            form["thinking_token_budget"] = thinking.budget_tokens


def untranslatable(body: Mapping[str, object]) -> str | None:
    """The path of what no server of chats can serve: tools of a server's own, what it would reach for by itself, blocks
    that no chat can say; or `max_tokens`, last, where it is missing, since a chat without it would go on and on.

    None where there is nothing of the kind. Linear in tools, blocks and messages; never raises.
    """
    for name in _KEPT_BY_ANTHROPIC:
        if body.get(name):
            return name
    place = _unservable_tool(body.get("tools")) or unsayable(body.get("system"), "system", "system")
    if place is not None:
        return place
    messages = body.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            place = unsayable(message.get("content"), message.get("role"), f"messages[{number}].content")
            if place is not None:
                return place
    return None if body.get("max_tokens") is not None else "max_tokens"


def _unservable_tool(tools: object) -> str | None:
    """The type of a tool that stands for a service of some server's own: it has no schema, and is no function."""
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and "input_schema" not in tool and tool.get("type") != "function":
            named = tool.get("type") not in (None, "custom")
            return f"tools[{number}].type" if named else f"tools[{number}].input_schema"
    return None


def _leading_system(system: str | Sequence[Mapping[str, Any]] | None) -> str:
    """The text of the field `system`. A string keeps the line that changes with every request, as in vLLM, where it is
    cut when the chat is rendered."""
    return system if isinstance(system, str) else system_text(system or ())


def _add_tools(form: dict[str, object], request: _Request) -> None:
    tools = _tools_in_effect(request)
    # Chat servers refuse an empty list, and a choice where there is nothing to choose from; those of messages do not.
    if not tools:
        return
    form["tools"] = [_function(tool, f"tools[{number}]") for number, tool in enumerate(tools)]
    choice = request.tool_choice
    if choice is None:
        return
    form["tool_choice"] = _tool_choice(choice)
    if choice.disable_parallel_tool_use is not None:
        form["parallel_tool_calls"] = not choice.disable_parallel_tool_use


def _function(raw: dict[str, Any], place: str) -> dict[str, object]:
    """A tool as a function; one without a schema is a service of some server's own and stays as it is."""
    if "input_schema" not in raw:
        return raw
    tool = converted(raw, _Tool, place)
    schema = tool.input_schema if "type" in tool.input_schema else {**tool.input_schema, "type": "object"}
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = schema
    for key, value in (("strict", tool.strict), ("defer_loading", tool.defer_loading)):
        if value is not None:
            function[key] = value
    return {"type": "function", "function": function}


def _tool_choice(choice: _ToolChoice) -> object:
    if choice.type == "tool":
        if not choice.name:
            raise BadRequest("a choice of type `tool` needs a name", param="tool_choice.name")
        return {"type": "function", "function": {"name": choice.name}}
    if choice.type not in _CHOICES:
        raise BadRequest("the type must be auto, any, tool or none", param="tool_choice.type")
    return _CHOICES[choice.type]


def _tools_in_effect(request: _Request) -> list[dict[str, Any]] | None:
    """The tools at the end of the conversation: system messages may add some by name or by value, and remove some."""
    changes = list(_tool_changes(request.messages))
    if not changes:
        return request.tools
    # Tools without a name cannot be spoken of, and stay.
    tools = {_name_of(tool, number): tool for number, tool in enumerate(request.tools or ())}
    removed: set[str | int] = set()
    for place, adds, change in changes:
        if change.definition is not None:
            name = converted(change.definition, _Tool, f"{place}.definition").name
            tools[name] = change.definition
        elif change.name is None or change.name not in tools:
            raise BadRequest("a tool is added or removed that is not among the tools", param=f"{place}.name")
        else:
            name = change.name
            if adds and "defer_loading" in tools[name]:
                tools[name] = {key: value for key, value in tools[name].items() if key != "defer_loading"}
        (removed.discard if adds else removed.add)(name)
    return [tool for name, tool in tools.items() if name not in removed]


def _name_of(tool: Mapping[str, Any], number: int) -> str | int:
    name = tool.get("name")
    return name if isinstance(name, str) else number


def _tool_changes(messages: Sequence[_Message]) -> Iterator[tuple[str, bool, _ToolChange]]:
    """Place, whether a tool is added, and the change, of each block that changes the tools."""
    for number, message in enumerate(messages):
        if message.role != "system" or isinstance(message.content, str):
            continue
        for position, block in enumerate(message.content):
            if block.get("type") in ("tool_addition", "tool_removal"):
                place = f"messages[{number}].content[{position}].tool"
                yield place, block["type"] == "tool_addition", converted(block.get("tool"), _ToolChange, place)
