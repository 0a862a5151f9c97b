"""Where, in a request's body, the things stand that a fix may touch: its tools, its system text, its last user text.

    chat         {"messages": [{"role": "system", "content": ...}, ..., {"role": "user", "content": ...}], "tools": []}
    messages     {"system": ..., "messages": [...], "tools": []}
    responses    {"instructions": ..., "input": ..., "tools": []}
                                ^^^ a text, or blocks with a text each

Only the first message of a chat counts as its system text, and only where its role is `system` or `developer`. What is
odd has no places: a name twice in one object, a type that is none of these. O(body), in C where nothing is looked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gateway.edge.json_spans import Member, elements, members, skip, string_at
from gateway.types import Route

_SYSTEM_ROLES: Final = ("system", "developer")
_TEXT_KINDS: Final = ("text", "input_text")
CACHE_MARK: Final = "cache_control"
MOST_SYSTEM_CHARS: Final = 256 * 1024
"""A longer system text is data: looking for what changes in it could take seconds."""
UNREADABLE: Final = (ValueError, IndexError, RecursionError)
"""What walking raises where the text is no JSON after all, or nested too deeply."""


class Odd(Exception):
    """The body is not of a form that fixes know: it is left alone."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text in the body: offsets of its quotes, and what it says. `marked`: a cache mark stands on its block."""

    start: int
    end: int
    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: where it stands, and its name."""

    start: int
    end: int
    name: str


def tools_of(text: str, route: Route) -> list[Tool]:
    """The tools of a request, in order. Raises `Odd` where one has no name, two have the same, or one a cache mark."""
    member = _top(text).get("tools")
    if member is None or text[member.value_start] != "[":
        return []
    tools = [Tool(start, end, _tool_name(text, start, route)) for start, end in elements(text, member.value_start)]
    if len({tool.name for tool in tools}) < len(tools):
        raise Odd
    return tools


def system_of(text: str, route: Route) -> list[Piece]:
    """The system text, in order; empty where there is none. Raises `Odd`."""
    top = _top(text)
    first: dict[str, Member] | None = None
    if route is Route.CHAT:
        first = next(_messages(text, top), None)
        if first is None or _said(text, first, "role") not in _SYSTEM_ROLES:
            return []
        member = first.get("content")
    else:
        member = top.get("system" if route is Route.MESSAGES else "instructions")
    if member is None:
        return []
    if _is_marked_beside(text, member):
        raise Odd
    pieces = _pieces(text, member)
    if sum(len(piece.text) for piece in pieces) > MOST_SYSTEM_CHARS:
        raise Odd
    if first is not None and CACHE_MARK in first:
        return [replace(piece, marked=True) for piece in pieces]
    return pieces


def last_user_of(text: str, route: Route) -> Piece | None:
    """The last text of the last message of a user; None where there is none. Raises `Odd`, also where a cache mark
    stands anywhere in the conversation: what goes behind it would cross it."""
    top = _top(text)
    if route is Route.RESPONSES:
        given = top.get("input")
        if given is not None and text[given.value_start] == '"':
            return _pieces(text, given)[0]
    last = None
    for message in _messages(text, top, "input" if route is Route.RESPONSES else "messages"):
        member = message.get("content")
        pieces = [] if member is None else _pieces(text, member)
        if CACHE_MARK in message or any(piece.marked for piece in pieces) or _is_marked_beside(text, member):
            raise Odd
        if _said(text, message, "role") == "user" and pieces:
            last = pieces[-1]
    return last


def _top(text: str) -> dict[str, Member]:
    return _object(text, skip(text, 0))


def _object(text: str, at: int) -> dict[str, Member]:
    """The members of an object by name. Raises `Odd` where a name comes twice."""
    if text[at : at + 1] != "{":
        raise Odd
    found: dict[str, Member] = {}
    for member in members(text, at):
        if member.key in found:
            raise Odd
        found[member.key] = member
    return found


def _messages(text: str, top: dict[str, Member], name: str = "messages") -> Iterator[dict[str, Member]]:
    member = top.get(name)
    if member is None or text[member.value_start] != "[":
        return
    for start, _ in elements(text, member.value_start):
        if text[start] != "{":
            raise Odd
        yield _object(text, start)


def _pieces(text: str, member: Member) -> list[Piece]:
    """The texts of a content: one, or those of its blocks; blocks of other kinds are passed over."""
    match text[member.value_start]:
        case '"':
            said, end = string_at(text, member.value_start)
            return [Piece(member.value_start, end, said)]
        case "[":
            return [piece for start, _ in elements(text, member.value_start) for piece in _block(text, start)]
        case "n":  # null
            return []
        case _:
            raise Odd


def _block(text: str, at: int) -> Iterator[Piece]:
    if text[at] != "{":
        raise Odd
    block = _object(text, at)
    if _said(text, block, "type") not in _TEXT_KINDS:
        return
    member = block.get("text")
    if member is None or text[member.value_start] != '"':
        raise Odd
    said, end = string_at(text, member.value_start)
    yield Piece(member.value_start, end, said, CACHE_MARK in block)


def _is_marked_beside(text: str, member: Member | None) -> bool:
    """Whether a block that is no text has a cache mark, or a block in it: a picture, a tool's result."""
    for block in _blocks(text, member):
        is_text = _said(text, block, "type") in _TEXT_KINDS
        if not is_text and (
            CACHE_MARK in block or any(CACHE_MARK in one for one in _blocks(text, block.get("content")))
        ):
            return True
    return False


def _blocks(text: str, member: Member | None) -> Iterator[dict[str, Member]]:
    if member is not None and text[member.value_start] == "[":
        for start, _ in elements(text, member.value_start):
            if text[start] == "{":
                yield _object(text, start)


def _said(text: str, found: dict[str, Member], name: str) -> str | None:
    """A member that is a text, decoded."""
    member = found.get(name)
    if member is None or text[member.value_start] != '"':
        return None
    return string_at(text, member.value_start)[0]


def _tool_name(text: str, at: int, route: Route) -> str:
    if text[at] != "{":
        raise Odd
    tool = _object(text, at)
    if CACHE_MARK in tool:
        raise Odd
    if route is Route.CHAT:
        function = tool.get("function")
        if _said(text, tool, "type") != "function" or function is None or text[function.value_start] != "{":
            raise Odd
        tool = _object(text, function.value_start)
        if CACHE_MARK in tool:
            raise Odd
    name = _said(text, tool, "name")
    if name is None:
        raise Odd
    return name
