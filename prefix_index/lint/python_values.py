"""What an expression of a source comes to, as far as prompts are concerned.

    f"Now: {now}. " + RULES        Text    fixed "Now: ", slot now, fixed ". ", fixed (what RULES is)
    [{"role": "system", ...}, *h]  Items   Message(system), Opaque(h)
    datetime.now()                 Opaque  origin `datetime.datetime.now()`

Nothing is run: what is not text, a list or a message is `Opaque`, known by its name and by what it was made from.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from prefix_index.layout import Cause, Volatility
from prefix_index.lint.text_templates import slot
from prefix_index.lint.types import Disorder, Part

LONGEST_NAME: Final = 80
_LONGEST_UNPARSED: Final = 24
"""Nodes of an expression that is written out in full; a longer one is known by how it begins."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text in parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something else. `origin` is the expression it was made from, with imported names in full."""

    name: str
    at: int
    origin: str = ""
    disorder: Disorder | None = None
    at_import: bool = False
    """Whether it was made once, when the module was imported."""
    each: Disorder | None = None
    """What is wrong with the order of the list that a loop takes this from."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple whose items are written in the source."""

    items: tuple["Value", ...]
    at: int
    disorder: Disorder | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation."""

    role: str
    content: "Value"


@dataclass(frozen=True, slots=True)
class Template:
    """A template object: what is put in later is in it as slots."""

    text: Text
    marks: str = "{}"
    """`$` for `string.Template`."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the module, with the names it sees."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: "Scope"
    is_method: bool = False


Value: TypeAlias = Text | Opaque | Items | Message | Template | Function


@dataclass(slots=True)
class Scope:
    """Names and what they stand for; what is not here is looked up in `above`."""

    names: dict[str, Value] = field(default_factory=dict)
    above: "Scope | None" = None
    own_class: "Scope | None" = None
    """What `self.x` and `cls.x` are, in a method."""
    returned: "Value | None" = None
    is_module: bool = False

    def find(self, name: str) -> Value | None:
        """What a name stands for."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.above
        return None

    def class_around(self) -> "Scope | None":
        """The class in whose method this is."""
        scope: Scope | None = self
        while scope is not None:
            if scope.own_class is not None:
                return scope.own_class
            scope = scope.above
        return None


def as_parts(value: Value, name: str, at: int) -> tuple[Part, ...]:
    """A value inside a text: spliced in where it is text, else a slot of that name at that place."""
    if isinstance(value, Template):
        value = value.text
    if isinstance(value, Text):
        return (replace(value.parts[0], at=at),) if _is_one_slot(value) else value.parts
    if isinstance(value, Opaque):
        return (slot_of(value, name or value.name, at),)
    disorder = value.disorder if isinstance(value, Items) else None
    return (replace(slot(name, at), disorder=disorder),)


def _is_one_slot(text: Text) -> bool:
    """What is nothing but a slot stands where it is put in, and not where it was made."""
    return len(text.parts) == 1 and text.parts[0].is_slot


def slot_of(value: Opaque, name: str, at: int) -> Part:
    """The slot that an opaque value fills."""
    made = slot(name, at, value.origin)
    if value.disorder is not None:
        cause = Cause.CONTENT if made.cause in (None, Cause.UNKNOWN, Cause.CONFIG) else made.cause
        made = replace(made, disorder=value.disorder, cause=cause, volatility=Volatility.PER_REQUEST)
    return replace(made, at_import=value.at_import, each=value.each)


def gathered(text: Text) -> Text:
    """Text that a loop adds to what it added before: its items come in the order of the list."""
    return Text(tuple(_gathered(part) for part in text.parts))


def _gathered(part: Part) -> Part:
    if part.each is None:
        return part
    return replace(part, disorder=part.each, cause=Cause.CONTENT, volatility=Volatility.PER_REQUEST)


def disorder_of(value: Value | None) -> Disorder | None:
    """What is wrong with a value's order."""
    return value.disorder if isinstance(value, (Opaque, Items)) else None


def written(node: ast.AST) -> str:
    """An expression as source, shortened; long ones by how they begin. O(1)."""
    text = _brief(node, _LONGEST_UNPARSED)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _brief(node: ast.AST, left: int) -> str:
    """Names, attributes, calls and constants by hand: the module `ast` takes ten times as long."""
    if left <= 0:
        return "…"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_brief(node.value, left - 1)}.{node.attr}"
    if isinstance(node, ast.Constant):
        return repr(node.value[:40] if isinstance(node.value, (str, bytes)) else node.value)
    if isinstance(node, ast.Subscript):
        return f"{_brief(node.value, left - 1)}[{_brief(node.slice, left // 2)}]"
    return _brief_call(node, left)


def _brief_call(node: ast.AST, left: int) -> str:
    if isinstance(node, ast.Call):
        given = [_brief(one, left // 2) for one in node.args[:3]]
        given += [f"{one.arg}={_brief(one.value, left // 2)}" for one in node.keywords[:3]]
        return f"{_brief(node.func, left - 1)}({', '.join(given)})"
    if isinstance(node, ast.Await):
        return _brief(node.value, left)
    if isinstance(node, ast.JoinedStr):
        return "f'…'"
    return _by_python(node)


def _by_python(node: ast.AST) -> str:
    for nodes, _ in enumerate(ast.walk(node), 1):
        if nodes > _LONGEST_UNPARSED:
            return type(node).__name__.lower()
    return " ".join(ast.unparse(node).split())


def joined(values: Sequence[Value], between: tuple[Part, ...], at: int) -> Text:
    """`between.join(values)`."""
    parts: list[Part] = []
    for index, value in enumerate(values):
        parts += between if index else ()
        parts += as_parts(value, value.name if isinstance(value, Opaque) else "items", at)
    return Text(tuple(parts))
