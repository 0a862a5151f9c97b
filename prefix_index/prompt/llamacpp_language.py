"""The dialect of Jinja that llama.cpp speaks: how it writes values, where that is not as Python does.

    client           {{ x }}      "" ~ x       x | string    x | tojson
    5.0              5.0          5.0          5             5            tojson: six digits at most, as C's %g
    123456.789       123456.789   123456.789   123457        123457
    0.0000001        0.0          0.0          1e-07         1e-07        printed: six places, less zeros at the end
    2^63             -2^63        -2^63        -2^63         -2^63        64 bits, the highest is the sign;
    2^64             ...616.0     ...616.0     1.84467e+19   1.84467e+19  beyond them it is a fraction
    null                                       None          null
    [1.0, "a"]       1.0a         [1.0, 'a']   [1.0, 'a']    [1, "a"]     texts in their quotes, nothing escaped
    {"a": 1.0}                    {'a': 1.0}   {'a': 1.0}    {"a": 1}

`tojson` cannot sort keys, and writes what is undefined as null. Recorded from it, and facts from its
`common/jinja/value.cpp`, `value.h` and `runtime.h`. Linear in what is written, 0.5 µs a value.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import jinja2
from jinja2 import nodes

from prefix_index.prompt.template_language import ChatEnvironment

PRINTED: Final = "as llama.cpp prints"
JOINED: Final = "as llama.cpp joins"
"""Filters around all that is printed, or joined with `~`. The spaces keep templates from writing their names."""

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_quoted: Final[Callable[[object], str]] = json.JSONEncoder(ensure_ascii=False).encode


class LlamaCppEnvironment(ChatEnvironment):
    """The sandbox and dialect of other engines, with llama.cpp's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.filters["tojson"] = _tojson
        self.filters["string"] = _string
        self.filters[PRINTED] = _printed
        self.filters[JOINED] = _joined

    def prepare(self, tree: nodes.Template) -> None:
        """As elsewhere, and whatever is printed or joined goes through a filter of its own. Changes `tree`."""
        super().prepare(tree)
        for output in tree.find_all(nodes.Output):
            output.nodes = [self._through(PRINTED, one) for one in output.nodes]
        for concat in tree.find_all(nodes.Concat):
            concat.nodes = [self._through(JOINED, one) for one in concat.nodes]

    def _through(self, name: str, node: nodes.Expr) -> nodes.Expr:
        is_text = isinstance(node, nodes.Const) and isinstance(node.value, str)
        if is_text or isinstance(node, nodes.TemplateData | nodes.Concat):
            return node
        filtered = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        filtered.set_environment(self)
        return filtered


@dataclass(frozen=True, slots=True)
class _Layout:
    """How `tojson` sets out what it writes: `indent` is below 0 where all stands on one line."""

    indent: int
    item_separator: str
    key_separator: str
    quoted: Callable[[object], str]

    def written(self, value: object, level: int = 0) -> str:
        """`value` as JSON. Raises `TypeError` for what is none."""
        if isinstance(value, str):
            return self.quoted(value)
        if value is None or isinstance(value, jinja2.Undefined):
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return _short(value)
        if isinstance(value, Mapping):
            items = (
                f"{self.quoted(str(key))}{self.key_separator}{self.written(one, level + 1)}"
                for key, one in value.items()
            )
            return self._set_out("{", items, "}", level)
        if isinstance(value, list | tuple):
            return self._set_out("[", (self.written(one, level + 1) for one in value), "]", level)
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")

    def _set_out(self, begin: str, items: Iterable[str], end: str, level: int) -> str:
        if self.indent < 0:
            return begin + self.item_separator.join(items) + end
        inner = "\n" + " " * (self.indent * (level + 1))
        joined = (self.item_separator + inner).join(items)
        return begin + inner + joined + "\n" + " " * (self.indent * level) + end if joined else begin + end


def _tojson(
    value: object,
    ensure_ascii: object = False,
    indent: object = None,
    separators: object = None,
    sort_keys: object = False,
) -> str:
    if sort_keys:
        raise jinja2.TemplateRuntimeError("llama.cpp cannot sort the keys that tojson writes")
    width = indent if isinstance(indent, int) and not isinstance(indent, bool) else -1
    given: Sequence[object] = separators if isinstance(separators, list | tuple) else ()
    item_separator = str(given[0]) if given else ", " if width < 0 else ","
    key_separator = str(given[1]) if len(given) > 1 else ": "
    return _Layout(width, item_separator, key_separator, _quoted_in_ascii if ensure_ascii else _quoted).written(value)


def _quoted_in_ascii(text: object) -> str:
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], _quoted(text))


def _printed(value: object) -> str:
    """`{{ value }}`: the items of a list one after the other, nothing for objects and null."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return _scalar(value)
    if isinstance(value, list | tuple | Iterator):
        return "".join(map(_printed, value))
    return ""


def _joined(value: object) -> str:
    """`value` beside a `~`."""
    if value is None or isinstance(value, jinja2.Undefined):
        return ""
    return value if isinstance(value, str) else _shown(value)


def _string(value: object) -> str:
    """`value | string`."""
    if isinstance(value, str | jinja2.Undefined):
        return str(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _short(value)
    return _shown(value)


def _shown(value: object) -> str:
    """A value in a list or object that is printed as a whole. Raises `TypeError` for what is no data."""
    if isinstance(value, str):
        return f"'{value}'" if "'" not in value else _quoted(value)
    if value is None or isinstance(value, bool | int | float):
        return _scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    raise TypeError(f"{type(value).__name__} cannot be shown")


def _scalar(value: bool | float | None) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    number = _number(value)
    if isinstance(number, int):
        return str(number)
    whole, point, places = f"{number:f}".partition(".")
    return f"{whole}.{places.rstrip('0') or '0'}" if point else whole


def _short(value: float) -> str:
    number = _number(value)
    return str(number) if isinstance(number, int) else f"{number:g}"


def _number(value: float) -> int | float:
    """An integer of 64 bits, or a fraction. Raises `OverflowError` for what is neither, which the engine refuses."""
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return (value + 2**63) % 2**64 - 2**63
    return float(value)
