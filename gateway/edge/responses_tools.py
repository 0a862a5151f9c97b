"""Tools of the Responses dialect as tools of a chat, and their calls back again.

    function   {type, name, parameters, strict}   ->  {type, function: {name, description, parameters, strict}}
    custom     {type, name, description}          ->  a function with one string, `input`
    namespace  {type, name, tools: [function]}    ->  its functions, each called `namespace__name`
    others     web_search, mcp, ...               ->  left out: a chat server has none of its own

The model sees what vLLM shows it for the same request. `ToolNames` knows the way back: a call of `crm__find` is one of
`find` in `crm`, and a call of a custom tool carries text instead of arguments.
"""

import json
from collections.abc import Iterator, Mapping

import msgspec

from gateway.errors import BadRequest
from gateway.surrogates import UNREADABLE, decode

NAMESPACE_SEPARATOR = "__"
CUSTOM_INPUT = "input"
"""The argument of a custom tool's function that holds the text."""

_FUNCTION_KEYS = ("description", "parameters", "strict", "defer_loading")
_NAMED_CHOICES = ("function", "custom")
_ALLOWED = "tool_choice.tools"
_anything = msgspec.json.Decoder()


def text_field(holder: Mapping[str, object], name: str, path: str) -> str:
    """The string at `name`. Raises `BadRequest` with the field's full path where it is none."""
    value = holder.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"Expected `str` - at `{path}.{name}`", param=f"{path}.{name}")
    return value


def object_items(value: object, path: str) -> list[tuple[str, Mapping[str, object]]]:
    """The objects of a list with their paths; null is an empty list. Raises `BadRequest` for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest(f"Expected `array` - at `{path}`", param=path)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise BadRequest(f"Expected `object` - at `{path}[{index}]`", param=f"{path}[{index}]")
    return [(f"{path}[{index}]", item) for index, item in enumerate(value)]


class ToolNames:
    """What the names of tools in a chat mean in the request they come from. Immutable; lenient with odd tools."""

    def __init__(self, tools: object) -> None:
        self._custom: set[str] = set()
        self._namespaced: dict[str, tuple[str, str]] = {}
        self._plain: set[str] = set()
        self._in_namespaces: dict[str, set[str]] = {}
        for tool in tools if isinstance(tools, list) else []:
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self._learn(name, tool)

    def _learn(self, name: str, tool: Mapping[str, object]) -> None:
        inner = tool.get("tools")
        if tool.get("type") == "namespace" and isinstance(inner, list):
            for function in inner:
                if isinstance(function, dict) and isinstance(local := function.get("name"), str):
                    self._namespaced[flat_name(name, local)] = (name, local)
                    self._in_namespaces.setdefault(local, set()).add(flat_name(name, local))
            return
        self._plain.add(name)
        if tool.get("type") == "custom":
            self._custom.add(name)

    def is_custom(self, name: str) -> bool:
        """Whether the tool takes text instead of arguments."""
        return name in self._custom

    def split(self, name: str) -> tuple[str | None, str]:
        """Namespace, or None, and name of the tool that the model calls `name`."""
        return self._namespaced.get(name, (None, name))

    def in_chat(self, name: str) -> str:
        """What a tool that the client calls `name` is called in the chat: full where only one namespace has it."""
        if name in self._plain:
            return name
        full = self._in_namespaces.get(name, set())
        return next(iter(full)) if len(full) == 1 else name


def flat_name(namespace: str, name: str) -> str:
    """The one name that a function in a namespace has in a chat."""
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}"


def chat_tools(tools: object) -> list[dict[str, object]]:
    """The tools a chat server can be given; raises `BadRequest` for a tool without a name. Linear."""
    return [{"type": "function", "function": function} for function in _functions(tools)]


def chat_tool_choice(choice: object, names: ToolNames) -> object:
    """`tool_choice` as chat completions has it; what it does not know passes as it is."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        allowed = [_one_choice(tool, names, path) for path, tool in object_items(choice.get("tools"), _ALLOWED)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": allowed}}
    return _one_choice(choice, names, "tool_choice")


def _one_choice(choice: Mapping[str, object], names: ToolNames, path: str) -> Mapping[str, object]:
    if choice.get("type") not in _NAMED_CHOICES:
        return choice
    return {"type": "function", "function": {"name": names.in_chat(text_field(choice, "name", path))}}


def unservable_tool(tools: object) -> str | None:
    """The path of what makes a tool one that only the server could run, or constrain; None where there is none."""
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        if not isinstance(tool, dict):
            continue
        if tool.get("type") not in ("function", "custom", "namespace"):
            return f"tools[{index}].type"
        form = tool.get("format")
        if isinstance(form, dict) and form.get("type") == "grammar":
            return f"tools[{index}].format"
    return None


def unservable_choice(choice: object) -> str | None:
    """`tool_choice.type` where it names a tool of the server's own."""
    served = not isinstance(choice, dict) or choice.get("type") in (*_NAMED_CHOICES, "allowed_tools")
    return None if served else "tool_choice.type"


def custom_arguments(text: str) -> str:
    """The arguments of a custom tool's function for this text: JSON, with the spaces that vLLM writes."""
    return json.dumps({CUSTOM_INPUT: text}, ensure_ascii=False)


def custom_text(arguments: str) -> str:
    """The text in a custom tool's arguments; a model that wrote something else meant that as the text."""
    try:
        parsed = decode(_anything, arguments.encode())
    except UNREADABLE:
        return arguments
    text = parsed.get(CUSTOM_INPUT) if isinstance(parsed, dict) else None
    return text if isinstance(text, str) else arguments


def _functions(tools: object) -> Iterator[dict[str, object]]:
    for path, tool in object_items(tools, "tools"):
        match tool.get("type"):
            case "function":
                yield _function(text_field(tool, "name", path), tool)
            case "custom":
                shim = {"description": tool.get("description"), "parameters": _custom_parameters()}
                yield _function(text_field(tool, "name", path), shim)
            case "namespace":
                namespace = text_field(tool, "name", path)
                for inner, function in object_items(tool.get("tools"), f"{path}.tools"):
                    if function.get("type") == "function":
                        yield _function(flat_name(namespace, text_field(function, "name", inner)), function)
            case str():
                pass
            case _:
                raise BadRequest(f"Expected `str` - at `{path}.type`", param=f"{path}.type")


def _function(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """In the order in which engines write functions into prompts; null says the same as nothing."""
    return {"name": name, **{key: given[key] for key in _FUNCTION_KEYS if given.get(key) is not None}}


def _custom_parameters() -> dict[str, object]:
    described = {"type": "string", "description": "The freeform text payload for this tool."}
    return {
        "type": "object",
        "properties": {CUSTOM_INPUT: described},
        "required": [CUSTOM_INPUT],
        "additionalProperties": False,
    }
