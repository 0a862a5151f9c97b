"""The ways in which Python puts values into text: `format`, `%`, `string.Template`, `replace`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from prefix_index.lint.python_values import Text, Value, as_parts
from prefix_index.lint.text_templates import slot
from prefix_index.lint.types import Part

_BRACES: Final = re.compile(
    r"\{\{|\}\}|\{(?P<name>(?:\d{1,3}|[A-Za-z_]\w{0,63})?)(?P<more>(?:\.\w{1,63}|\[[\w'\"]{1,63}\]){0,4})"
    r"(?:![rsa])?(?P<spec>:[^{}\n]{0,32})?\}"
)
_PERCENT: Final = re.compile(r"%%|%(?:\((?P<name>\w{1,64})\))?[-#0 +]{0,3}\d{0,4}(?:\.\d{1,4})?[sdrfixXgGeEaco]")
_DOLLAR: Final = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w{0,63})|\$\{(?P<braced>[A-Za-z_]\w{0,63})\}")
_ESCAPES: Final = {"{{": "{", "}}": "}", "%%": "%", "$$": "$"}

Fill = Callable[[re.Match[str], int], tuple[Part, ...]]


def formatted(text: Text, given: Sequence[Value], named: Mapping[str, Value]) -> Text:
    """`text.format(*given, **named)`; what is not given stays a slot."""
    count = 0

    def fill(match: re.Match[str], at: int) -> tuple[Part, ...]:
        nonlocal count
        name = match["name"]
        if not name:
            name, count = str(count), count + 1
        value = named.get(name)
        if name.isdigit():
            value = given[int(name)] if int(name) < len(given) else None
        if value is None or match["more"]:
            return (slot(name + match["more"], at),)
        return as_parts(value, "" if name.isdigit() else name, at)

    return _filled(text, _BRACES, fill)


def percent_formatted(text: Text, given: Sequence[Value], named: Mapping[str, Value]) -> Text:
    """`text % given`, or `text % named`."""
    left = list(given)

    def fill(match: re.Match[str], at: int) -> tuple[Part, ...]:
        name = match["name"] or ""
        value = named.get(name) if name else (left.pop(0) if left else None)
        return (slot(name or "value", at),) if value is None else as_parts(value, name, at)

    return _filled(text, _PERCENT, fill)


def dollar_formatted(text: Text, named: Mapping[str, Value]) -> Text:
    """`Template(text).substitute(**named)`."""

    def fill(match: re.Match[str], at: int) -> tuple[Part, ...]:
        name = match["name"] or match["braced"]
        return as_parts(named[name], name, at) if name in named else (slot(name, at),)

    return _filled(text, _DOLLAR, fill)


def replaced(text: Text, what: str, value: Value) -> Text:
    """`text.replace(what, value)`, as far as `what` stands in fixed text."""
    name = re.sub(r"\W+", "_", what).strip("_") or "value"
    return _filled(text, re.compile(re.escape(what)), lambda _, at: as_parts(value, name, at))


def _filled(text: Text, pattern: re.Pattern[str], fill: Fill) -> Text:
    parts: list[Part] = []
    for part in text.parts:
        if part.is_slot:
            parts.append(part)
        else:
            parts += _split(part, pattern, fill)
    return Text(tuple(parts))


def _split(part: Part, pattern: re.Pattern[str], fill: Fill) -> list[Part]:
    found: list[Part] = []
    begun = 0
    for match in pattern.finditer(part.text):
        start, end = match.span()
        if start > begun:
            found.append(replace(part, text=part.text[begun:start], at=part.at + begun))
        begun = end
        if match[0] in _ESCAPES:
            found.append(replace(part, text=_ESCAPES[match[0]], at=part.at + start))
        else:
            found += fill(match, part.at + start)
    if begun < len(part.text):
        found.append(replace(part, text=part.text[begun:], at=part.at + begun))
    return found
