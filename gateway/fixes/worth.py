"""Which fixes a request can be in need of, by what has been read of it already: where none is, its bytes are not looked
at. What is said here may be too much, never too little: the fix itself decides."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.fixes.days import rounded_days
from gateway.fixes.lines import movable_lines
from gateway.fixes.places import MOST_SYSTEM_CHARS
from gateway.fixes.types import Fix, How
from gateway.types import InferenceRequest, Route

_SYSTEM: Final = {Route.MESSAGES: "system", Route.RESPONSES: "instructions"}


def worth(request: InferenceRequest, how: How) -> How:
    """The same with those fixes alone that could change the request. O(system text and names of tools)."""
    fixes = tuple(fix for fix in how.fixes if _may_change(request, fix, how))
    return how if len(fixes) == len(how.fixes) else replace(how, fixes=fixes)


def _may_change(request: InferenceRequest, fix: Fix, how: How) -> bool:
    match fix:
        case Fix.TOOLS:
            names = _tool_names(request)
            return names != (sorted(names) if how.tools_in is None else [*how.tools_in])
        case Fix.LINES:
            return any(movable_lines(text, how.most_lines, also_last=True) for text in _system_texts(request))
        case Fix.DAY:
            return any(rounded_days(text) for text in _system_texts(request))
        case _:
            return True


def _tool_names(request: InferenceRequest) -> list[str]:
    tools = request.prompt.tools if request.foreign is None else request.foreign.body.get("tools")
    found = []
    for tool in tools if isinstance(tools, list) else ():
        inner = tool.get("function") if isinstance(tool, dict) and request.foreign is None else tool
        name = inner.get("name") if isinstance(inner, dict) else None
        found.append(name if isinstance(name, str) else "")
    return found


def _system_texts(request: InferenceRequest) -> list[str]:
    texts = _all_system_texts(request)
    return texts if sum(map(len, texts)) <= MOST_SYSTEM_CHARS else []


def _all_system_texts(request: InferenceRequest) -> list[str]:
    if request.foreign is not None:
        return _texts(request.foreign.body.get(_SYSTEM.get(request.route, "")))
    messages = request.prompt.messages
    return _texts(messages[0].get("content")) if messages else []


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    found = [block.get("text") for block in blocks if isinstance(block, Mapping)]
    return [text for text in found if isinstance(text, str)]
