"""Fields put into, and taken out of, a JSON object's bytes without writing the rest of it anew.

    {"model": "m", "cache_salt": "x", "n" : 1.0}
                 ^^^^^^^^^^^^^^^^^^^ cut                     ^ put before the last brace: the last key wins

Everything the client wrote keeps its order, spacing, number formats, escapes and duplicate keys. A field of ours goes
to the end, so that it wins in every parser that lets the last of two equal keys win, even over a key we overlooked.

Cost: adding alone is O(1) beside the copy; a cut walks the top level once, values skipped by the C scanner of json.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.errors import BadRequest

_WHITESPACE = re.compile(r"[ \t\n\r]*")
# parse_int: a number is only walked over, and int() refuses one of more than 4300 digits.
_scan_value: Callable[[str, int], tuple[object, int]] = json.JSONDecoder(parse_int=str).scan_once  # type: ignore[attr-defined]  # untyped

_scan_string: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]  # untyped


@dataclass(frozen=True, slots=True)
class _Member:
    """One `key: value` of the top level; offsets are in characters, `end` is after the value."""

    key: str
    start: int
    value_start: int
    end: int


def add_fields(body: bytes, fields: Mapping[str, bytes]) -> bytes:
    """`body`, a JSON object, with `fields` (name to JSON bytes) as its last members."""
    if not fields:
        return body
    head = body.rstrip(b" \t\n\r")
    assert head.endswith(b"}"), "the body was parsed as an object before"
    ours = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields.items())
    before = head[:-1]
    comma = b"" if before.rstrip(b" \t\n\r").endswith(b"{") else b","
    return before + comma + ours + b"}"


def cut_fields(body: bytes, names: frozenset[str]) -> bytes:
    """`body` without the top-level members called one of `names`, every duplicate of them; the rest unchanged.

    Raises `BadRequest` where cutting would need a walk too deep to make.
    """
    text = body.decode()
    members = list(_members(text))
    kept = [member for member in members if member.key not in names]
    if len(kept) == len(members):
        return body
    opening = text[: text.index("{") + 1]
    closing = text[members[-1].end :]
    return (opening + ",".join(text[member.start : member.end] for member in kept) + closing).encode()


def put_in_object(body: bytes, name: str, inner: Mapping[str, bytes]) -> bytes:
    """`body` where the last top-level member called `name`, an object or null, has `inner` as its last members, in
    place of any of the same names."""
    text = body.decode()
    member = [found for found in _members(text) if found.key == name][-1]
    value = text[member.value_start : member.end].encode()
    new = add_fields(cut_fields(value, frozenset(inner)) if value.startswith(b"{") else b"{}", inner)
    return text[: member.value_start].encode() + new + text[member.end :].encode()


def _members(text: str) -> Iterator[_Member]:
    """The members of the top-level object of valid JSON, in order. O(length), values are not kept."""
    at = _skip(text, 0) + 1
    while True:
        start = _skip(text, at)
        if text[start] == "}":
            return
        key, at = _scan_string(text, start + 1)
        value_start = _skip(text, _skip(text, at) + 1)
        try:
            _, end = _scan_value(text, value_start)
        except RecursionError:
            raise BadRequest("the request body is nested too deeply") from None
        yield _Member(key, start, value_start, end)
        at = _skip(text, end)
        if text[at] == "}":
            return
        at += 1


def _skip(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    assert found is not None
    return found.end()
