"""Tool calls that a client forces: `tool_choice` is "required", or names a function.

    tools[0].function.parameters.properties: {"days": integer, "city": string}   -->   {"city": "<generated text>"}

The model fills in one string, the first free one of the function's parameters; the JSON around it leaves no choice and
costs no token. A function without such a parameter is called with {} (and one token, for no engine answers with none).
With "auto" this engine never calls: nothing would parse what the model wrote.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from backends.reference.errors import RequestRefused
from backends.reference.types import Delta, FinishReason, GenerationRequest

CALL_TEXT_TOKENS = 8
"""The longest argument. The tiny model's random weights would never end it."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """A call the answer consists of. `argument` is the parameter that gets the generated text, None without one.

    `finish_reason` is that of a finished call: vLLM says "tool_calls" for a required one, "stop" for a named one.
    """

    id: str
    name: str
    argument: str | None
    finish_reason: str

    @property
    def text_tokens(self) -> int:
        """How many tokens a finished call takes at most."""
        return 1 if self.argument is None else CALL_TEXT_TOKENS

    @property
    def opening(self) -> str:
        """The arguments' JSON up to the generated text."""
        return "{" if self.argument is None else "{" + json.dumps(self.argument, ensure_ascii=False) + ': "'

    def fragment(self, text: str) -> str:
        """Generated text as part of the arguments' JSON."""
        return "" if self.argument is None else json.dumps(text, ensure_ascii=False)[1:-1]

    def closing(self, last: Delta) -> str:
        """The rest of the arguments' JSON; nothing when the client's own limit cut them."""
        if self._is_cut(last):
            return ""
        return "}" if self.argument is None else '"}'

    def finish(self, last: Delta) -> str:
        """The finish reason of the whole answer."""
        return FinishReason.LENGTH if self._is_cut(last) else self.finish_reason

    def bounded(self, request: GenerationRequest) -> GenerationRequest:
        """`request` with no more output than a call needs."""
        limit = min(request.sampling.max_tokens, self.text_tokens)
        return replace(request, sampling=replace(request.sampling, max_tokens=limit))

    def _is_cut(self, last: Delta) -> bool:
        return last.finish is FinishReason.LENGTH and last.receipt.completion_tokens < self.text_tokens


def forced_call(tools: Sequence[Json] | None, choice: object) -> ForcedCall | None:
    """The call that `tool_choice` demands; None for none, "none" and "auto". Raises `RequestRefused` (400)."""
    if tools == []:
        raise RequestRefused("tools must not be an empty array", param="tools")
    if choice is None or choice == "none":
        return None
    if tools is None:
        raise RequestRefused("tool_choice needs tools", param="tool_choice")
    functions = [_function_of(tool) for tool in tools]
    if choice == "auto":
        return None
    if choice == "required":
        return _call(functions[0], "tool_calls")
    if not isinstance(choice, dict):
        raise RequestRefused("tool_choice must be none, auto, required or a named function", param="tool_choice")
    named = choice.get("function")
    name = named.get("name") if isinstance(named, dict) else None
    chosen = [function for function in functions if function["name"] == name]
    if not chosen:
        raise RequestRefused("tool_choice names none of the tools", param="tool_choice")
    return _call(chosen[0], "stop")


def _function_of(tool: Json) -> Json:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestRefused("each tool needs a function with a name", param="tools")
    return function


def _call(function: Json, finish_reason: str) -> ForcedCall:
    return ForcedCall(f"chatcmpl-tool-{uuid4().hex}", str(function["name"]), _free_string(function), finish_reason)


def _free_string(function: Json) -> str | None:
    """The first parameter that takes any string."""
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema:
            return str(name)
    return None
