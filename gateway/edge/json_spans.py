"""Where the parts of a JSON text stand: members of an object, elements of a list, one level at a time.

    {"model": "m", "tools" : [ {"name": "a"}, {"name": "b"} ]}
     ^start         ^start  ^value_start                    ^end        members(text, 0)
                               ^-----------^                            elements(text, value_start)

The text is known to be JSON; what stands deeper is skipped by the C scanner of json. O(length of the value). A text
nested too deeply to be scanned raises `RecursionError`, one that is no JSON after all `ValueError` or `IndexError`.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_WHITESPACE = re.compile(r"[ \t\n\r]*")
# parse_int: a number is only walked over, and int() refuses one of more than 4300 digits.
_scan_value: Callable[[str, int], tuple[object, int]] = json.JSONDecoder(parse_int=str).scan_once  # type: ignore[attr-defined]  # untyped

_scan_string: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]  # untyped


@dataclass(frozen=True, slots=True)
class Member:
    """One `key: value` of an object; offsets are in characters, `end` is after the value."""

    key: str
    start: int
    value_start: int
    end: int


def members(text: str, at: int) -> Iterator[Member]:
    """The members of the object whose opening brace stands at `at`, or behind white space, in order."""
    at = skip(text, at) + 1
    while True:
        start = skip(text, at)
        if text[start] == "}":
            return
        key, at = _scan_string(text, start + 1)
        value_start = skip(text, skip(text, at) + 1)
        end = end_of_value(text, value_start)
        yield Member(key, start, value_start, end)
        at = skip(text, end)
        if text[at] == "}":
            return
        at += 1


def elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of each element of the list whose opening bracket stands at `at`, in order."""
    at = skip(text, at) + 1
    while True:
        start = skip(text, at)
        if text[start] == "]":
            return
        end = end_of_value(text, start)
        yield start, end
        at = skip(text, end)
        if text[at] == "]":
            return
        at += 1


def string_at(text: str, at: int) -> tuple[str, int]:
    """The string whose opening quote stands at `at`, decoded, and where it ends, behind its closing quote."""
    return _scan_string(text, at + 1)


def end_of_value(text: str, at: int) -> int:
    """Where the value that begins at `at` ends."""
    try:
        _, end = _scan_value(text, at)
    except StopIteration:  # in a generator it would end that
        raise ValueError("no JSON value begins here") from None
    return end


def skip(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    found = _WHITESPACE.match(text, at)
    assert found is not None
    return found.end()
