"""Captured requests: bodies of OpenAI Chat Completions, Responses, Completions and Anthropic Messages, in units.

    body --> tools[0] tools[1] ... system ... messages[0] messages[1] ...     in the order in which a prompt has them

Units are what two requests are compared by: the same texts are the same object, so comparing is cheap. Text stays in
here: what leaves are names of parts, offsets and digests.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2s
from typing import Any, Final

MOST_UNITS: Final = 20_000
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_WRAPPERS: Final = ("request", "body", "raw", "request_body", "payload", "kwargs", "json")
_KEYS: Final = ("key", "key_id", "tenant", "tenant_id", "api_key_hash", "user_api_key_hash")

Body = Mapping[str, Any]


class Kind(StrEnum):
    """What a unit is."""

    TOOL = "tool"
    SYSTEM = "system"
    DOCUMENT = "document"
    MESSAGE = "message"
    MEDIA = "media"


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a prompt. `part` names it (`messages[2].content[1]`), `name` is a tool's name or a message's role."""

    kind: Kind
    part: str
    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One captured request. `group` is whose it is: key and user, as far as the row says."""

    number: int
    line: int
    model: str
    group: str
    units: tuple[Unit, ...]
    salt: str | None = None
    schema: str = field(default="", repr=False)
    body: Body = field(default_factory=dict, repr=False)
    path: str = ""

    @property
    def head(self) -> Sequence[Unit]:
        """Tools and system prompt."""
        return [unit for unit in self.units if unit.kind in (Kind.TOOL, Kind.SYSTEM)]


def body_of(row: object) -> Body | None:
    """The body in a row: the row itself, or what it wraps; None where there is none with a prompt."""
    if not isinstance(row, dict):
        return None
    if _is_body(row):
        return row
    for name in _WRAPPERS:
        inner = _decoded(row.get(name))
        if isinstance(inner, dict) and _is_body(inner):
            return inner
    return None


def _is_body(value: Body) -> bool:
    if isinstance(value.get("messages"), list):
        return all(isinstance(one, dict) for one in value["messages"])
    return "model" in value and isinstance(value.get("input", value.get("prompt")), (str, list))


def _decoded(value: object) -> object:
    """A body may be kept as text."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def request_of(number: int, line: int, row: Mapping[str, Any], body: Body, seen: dict[str, str]) -> Request:
    """A body in units; `seen` holds each text once. O(length of the body)."""
    units = []
    for unit in _units(body):
        units.append(Unit(unit.kind, unit.part, unit.name, seen.setdefault(unit.text, unit.text)))
        if len(units) == MOST_UNITS:
            break
    salt = body.get("cache_salt")
    schema = body.get("response_format") or body.get("text") or body.get("output_config")
    return Request(
        number,
        line,
        str(body.get("model", "")),
        _group(row, body),
        tuple(units),
        None if salt is None else str(salt),
        "" if schema is None else _json(schema),
        body,
    )


def digest(text: str, key: bytes) -> str:
    """What stands for a text: keyed, so that likely texts cannot be looked up."""
    return blake2s(text.encode("utf-8", "surrogatepass"), key=key[:32], digest_size=6).hexdigest()


def _group(row: Mapping[str, Any], body: Body) -> str:
    words = [str(row[name]) for name in _KEYS if row is not body and isinstance(row.get(name), (str, int))]
    words += [str(body[name]) for name in ("user", "safety_identifier") if isinstance(body.get(name), str)]
    return "/".join(words)


def _units(body: Body) -> Iterator[Unit]:
    tools = body.get("tools") or body.get("functions")
    for at, tool in enumerate(tools if isinstance(tools, list) else ()):
        yield Unit(Kind.TOOL, f"tools[{at}]", _tool_name(tool), _json(tool))
    for name in ("system", "instructions"):
        yield from _content(body.get(name), name, Kind.SYSTEM, "system")
    documents = body.get("documents")
    for at, one in enumerate(documents if isinstance(documents, list) else ()):
        yield Unit(Kind.DOCUMENT, f"documents[{at}]", "document", one if isinstance(one, str) else _json(one))
    for name in ("messages", "input", "prompt"):
        yield from _messages(body.get(name), name)


def _messages(value: object, name: str) -> Iterator[Unit]:
    if isinstance(value, str):
        yield Unit(Kind.MESSAGE, name, "user", value)
    is_head = True
    for at, one in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(one, dict):
            continue
        role = str(one.get("role", one.get("type", "")))
        is_head = is_head and role in _SYSTEM_ROLES
        kind = Kind.SYSTEM if is_head else Kind.MESSAGE
        yield from _content(one.get("content", one.get("output")), f"{name}[{at}]", kind, role)
        called = one.get("tool_calls") or one.get("arguments")
        if called:
            yield Unit(Kind.MESSAGE, f"{name}[{at}].calls", role, _json(called))


def _content(value: object, part: str, kind: Kind, role: str) -> Iterator[Unit]:
    if isinstance(value, str):
        yield Unit(kind, part, role, value)
        return
    for at, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, str):
            yield Unit(kind, f"{part}[{at}]", role, one)
        elif isinstance(one, dict):
            text = one.get("text")
            media = None if isinstance(text, str) else _media(one)
            where = f"{part}.content[{at}]" if kind is Kind.MESSAGE else f"{part}[{at}]"
            if media is not None:
                yield Unit(Kind.MEDIA, where, role, media)
            else:
                yield Unit(kind, where, role, text if isinstance(text, str) else _json(_unmarked(one)))


def _media(part: Mapping[str, Any]) -> str | None:
    """The address or bytes of an image, a sound or a file; None where the part is none."""
    for name in ("image_url", "input_audio", "video_url", "audio_url", "file", "source", "file_url"):
        value = part.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            found = value.get("url") or value.get("data") or value.get("file_data") or value.get("file_id")
            if isinstance(found, str):
                kind = value.get("media_type")
                return f"data:{kind};base64,{found}" if kind and "data" in value else found
    return None


def _unmarked(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the mark of a provider's cache, which is not rendered."""
    return {name: value for name, value in part.items() if name != "cache_control"}


def _tool_name(tool: object) -> str:
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name", named.get("type", "")))


def _json(value: object) -> str:
    """Keys as they came: their order is rendered."""
    return json.dumps(value, ensure_ascii=False)


def same_units(first: Sequence[Unit], second: Sequence[Unit]) -> int:
    """How many units from the head on are the same."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one.text is not other.text or one.kind is not other.kind or one.name != other.name:
            break
        count += 1
    return count


def texts(units: Iterable[Unit]) -> list[str]:
    """The texts of units."""
    return [unit.text for unit in units]
