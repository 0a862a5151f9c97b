"""Expressions of a module as values: text in parts, lists, messages; all else by what it was made from.

Nothing is run. Names are looked up in the module, functions of the module are followed into (`MAX_DEPTH` deep), and
what was imported is known under its full name, so that `from datetime import datetime as dt; dt.now()` is seen to be
the time. Steps are counted: what would take more than `MAX_STEPS` raises `TooLarge`.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from prefix_index.lint.python_calls import called
from prefix_index.lint.python_format import percent_formatted
from prefix_index.lint.python_source import Source
from prefix_index.lint.python_values import (
    Function,
    Items,
    Message,
    Opaque,
    Scope,
    Template,
    Text,
    Value,
    as_parts,
    disorder_of,
    written,
)
from prefix_index.lint.types import Disorder, Part

_STRFTIME: Final = re.compile(r"%-?[A-Za-z]")
MAX_STEPS: Final = 200_000
MAX_DEPTH: Final = 4
MAX_FOLLOWED: Final = 4
MAX_PARTS: Final = 2_000


class TooLarge(Exception):
    """The module takes more steps to read than are worth it."""


class Runs(Protocol):
    """What runs the body of a function that is called."""

    def __call__(self, function: Function, scope: Scope) -> Value | None: ...


class Sees(Protocol):
    """Is told of what may go to a model."""

    def call(self, name: str, last: str, given: Sequence[Value], named: Mapping[str, Value]) -> None: ...

    def message(self, value: Message) -> None: ...

    def conversation(self, value: Value) -> None: ...


class Evaluator:
    """Evaluates expressions of one module.

    `run` is asked for what a function of the module returns; `sees` is told of calls and messages.
    """

    def __init__(self, source: Source, run: Runs, sees: Sees) -> None:
        self.source = source
        self.sees = sees
        self._run = run
        self._steps = 0
        self._returned: dict[int, Value | None] = {}
        self._followed: Counter[int] = Counter()
        self.depth = 0

    def value(self, node: ast.expr | None, scope: Scope) -> Value:
        """What an expression comes to. Raises `TooLarge`."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooLarge
        if node is None:
            return Opaque("None", 0)
        one = _READERS.get(type(node))
        found = self.opaque(node, scope) if one is None else one(self, node, scope)
        if isinstance(found, Text) and len(found.parts) > MAX_PARTS:
            raise TooLarge
        return found

    def opaque(self, node: ast.expr, scope: Scope, origin: str = "", disorder: Disorder | None = None) -> Opaque:
        """An expression that is known by its words alone."""
        name = written(node)
        return Opaque(name, self.source.at(node), origin or self.source.full_name(name), disorder, scope.is_module)

    def call(self, function: Function, given: Mapping[str, Value]) -> Value | None:
        """What a function of the module returns, for arguments by name; None where that is not followed.

        Read once, and once more (a few times at most) where something is given that its parameters do not tell.
        """
        node = function.node
        telling = {name: value for name, value in given.items() if _tells(value)}
        if not telling or self.depth >= MAX_DEPTH or self._followed[id(node)] >= MAX_FOLLOWED:
            return self.returned(function)
        self._followed[id(node)] += 1
        return self._enter(function, telling)

    def returned(self, function: Function) -> Value | None:
        """What a function returns, whatever it is given; None too while it is being read."""
        key = id(function.node)
        if key not in self._returned:
            self._returned[key] = None
            self._returned[key] = self._enter(function, {})
        return self._returned[key]

    def _enter(self, function: Function, given: Mapping[str, Value]) -> Value | None:
        self.depth += 1
        try:
            scope = Scope(dict(given), above=function.scope, own_class=function.scope.own_class)
            return self._run(function, scope)
        finally:
            self.depth -= 1

    def constant(self, node: ast.Constant, scope: Scope) -> Value:
        """A text as it stands."""
        if isinstance(node.value, str):
            return Text((Part(node.value, self.source.at_text(node)),)) if node.value else Text(())
        return Opaque(repr(node.value)[:20], self.source.at(node), "constant")

    def joined(self, node: ast.JoinedStr, scope: Scope) -> Value:
        """An f-string."""
        parts: list[Part] = []
        cursor = self.source.cursor(node)
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                text = str(piece.value)
                parts.append(Part(text, cursor.literal(text)))
            elif isinstance(piece, ast.FormattedValue):
                parts += self._filled(piece, cursor.slot(written(piece.value)), scope)
        return Text(tuple(parts))

    def _filled(self, piece: ast.FormattedValue, at: int, scope: Scope) -> tuple[Part, ...]:
        value = self.value(piece.value, scope)
        name = written(piece.value)
        if isinstance(value, Opaque) and isinstance(piece.format_spec, ast.JoinedStr):
            spec = "".join(str(one.value) for one in piece.format_spec.values if isinstance(one, ast.Constant))
            if _STRFTIME.search(spec):
                value = replace(value, origin=f"{value.origin or value.name}.strftime('{spec}')")
        return as_parts(value, name, at)

    def binary(self, node: ast.BinOp, scope: Scope) -> Value:
        """`+` of texts or lists, `%` of a text and what fills it."""
        left = self.value(node.left, scope)
        if isinstance(node.op, ast.Mod) and isinstance(left, Text):
            return self._percent(left, node.right, scope)
        right = self.value(node.right, scope)
        if not isinstance(node.op, ast.Add):
            return self._mixed(node, scope, left, right)
        if isinstance(left, Items) or isinstance(right, Items):
            disorder = (
                disorder_of(left) or disorder_of(right)
                if isinstance(left, Items) and isinstance(right, Items)
                else None
            )
            return self._seen(Items((*_items(left), *_items(right)), self.source.at(node), disorder))
        if isinstance(left, Text) or isinstance(right, Text):
            return Text((*self._parts(node.left, left), *self._parts(node.right, right)))
        return self._mixed(node, scope, left, right)

    def _percent(self, left: Text, right: ast.expr, scope: Scope) -> Value:
        if isinstance(right, ast.Dict):
            named = {
                key.value: self.value(value, scope)
                for key, value in zip(right.keys, right.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            return percent_formatted(left, (), named)
        given = right.elts if isinstance(right, ast.Tuple) else [right]
        return percent_formatted(left, [self.value(one, scope) for one in given], {})

    def _parts(self, node: ast.expr, value: Value) -> tuple[Part, ...]:
        return as_parts(value, written(node), self.source.at(node))

    def _mixed(self, node: ast.expr, scope: Scope, *values: Value) -> Opaque:
        """What is made from several things is made from the first of them that is known to change."""
        origins = [one.origin for one in values if isinstance(one, Opaque) and "(" in one.origin]
        disorder = next(filter(None, map(disorder_of, values)), None)
        return self.opaque(node, scope, origins[0] if origins else "", disorder)

    def name(self, node: ast.Name, scope: Scope) -> Value:
        """What a name stands for."""
        found = scope.find(node.id)
        return self.opaque(node, scope) if found is None else found

    def attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        """`self.x` is what the class says; all else is known by its words."""
        owner = node.value
        own_class = scope.class_around() if isinstance(owner, ast.Name) and owner.id in {"self", "cls"} else None
        if own_class is not None:
            found = own_class.names.get(node.attr)
            return self.opaque(node, scope) if found is None else found
        value = self.value(owner, scope) if isinstance(owner, (ast.Name, ast.Call, ast.Attribute)) else None
        if isinstance(value, Opaque) and "(" in value.origin:
            return replace(self.opaque(node, scope, f"{value.origin}.{node.attr}", value.disorder), each=value.each)
        return replace(self.opaque(node, scope), each=value.each if isinstance(value, Opaque) else None)

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        """A slice off the head of a list loses its oldest items with each new one."""
        value = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            cut = Disorder.CUT if _is_tail(node.slice) else disorder_of(value)
            if isinstance(value, Text) and cut is None:
                return value
            return self.opaque(node, scope, written(node.value), cut)
        if isinstance(value, Opaque):
            return self.opaque(node, scope, f"{value.origin}[…]" if "(" in value.origin else "", None)
        return self.opaque(node, scope)

    def items(self, node: ast.List | ast.Tuple, scope: Scope) -> Value:
        """A list with its items; what is unpacked into it is spread out where it is known."""
        found: list[Value] = []
        disorder: Disorder | None = None
        for one in node.elts:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, scope)
            found += _items(value) if isinstance(one, ast.Starred) else [value]
            if isinstance(one, ast.Starred) and disorder_of(value) is not Disorder.CUT:
                disorder = disorder or disorder_of(value)
        return self._seen(Items(tuple(found), self.source.at(node), disorder))

    def _seen(self, items: Items) -> Items:
        self.sees.conversation(items)
        return items

    def a_set(self, node: ast.Set | ast.SetComp, scope: Scope) -> Value:
        """A set has another order in every process."""
        return self.opaque(node, scope, "", Disorder.SET)

    def mapping(self, node: ast.Dict, scope: Scope) -> Value:
        """A dict that is a message is one."""
        fields = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        values = {name: self.value(one, scope) for name, one in fields.items()}
        if "role" in values and "content" in values:
            message = Message(plain_text(values["role"]), values["content"])
            self.sees.message(message)
            return message
        return self.opaque(node, scope, "dict")

    def choice(self, node: ast.IfExp, scope: Scope) -> Value:
        """Of two, the one that says more."""
        first, other = self.value(node.body, scope), self.value(node.orelse, scope)
        if isinstance(first, Text) and any(part.is_slot for part in first.parts):
            return first
        return other if isinstance(other, Text) and other.parts else first

    def either(self, node: ast.BoolOp, scope: Scope) -> Value:
        """`given or default`: the first is what it mostly is."""
        values = [self.value(one, scope) for one in node.values]
        return next((one for one in values if not isinstance(one, Opaque)), values[0])

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
        """As disordered as what it goes over."""
        over = self.value(node.generators[0].iter, scope)
        origin = over.origin if isinstance(over, Opaque) else ""
        return self.opaque(node, scope, origin or written(node.generators[0].iter), disorder_of(over))

    def awaited(self, node: ast.Await, scope: Scope) -> Value:
        """What it gives."""
        return self.value(node.value, scope)

    def named(self, node: ast.NamedExpr, scope: Scope) -> Value:
        """`name := value`."""
        found = self.value(node.value, scope)
        scope.names[node.target.id] = found
        return found

    def called(self, node: ast.Call, scope: Scope) -> Value:
        """A call; see python_calls."""
        return called(self, node, scope)


def plain_text(value: Value) -> str:
    """A text without slots; else nothing."""
    if isinstance(value, Text) and not any(part.is_slot for part in value.parts):
        return "".join(part.text for part in value.parts)
    return ""


def _tells(value: Value) -> bool:
    """Whether a value says more than the name of the parameter that it is given to."""
    if isinstance(value, Opaque):
        return "(" in value.origin or value.disorder is not None
    return isinstance(value, (Text, Items, Message, Template))


def _items(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, Items) else (value,)


def _is_tail(cut: ast.Slice) -> bool:
    """`[-n:]` and `[len(x) - n:]`, whatever n is; no end, no step."""
    if cut.upper is not None or cut.step is not None or cut.lower is None:
        return False
    is_negative = isinstance(cut.lower, ast.UnaryOp) and isinstance(cut.lower.op, ast.USub)
    return is_negative or (isinstance(cut.lower, ast.BinOp) and isinstance(cut.lower.op, ast.Sub))


Reader = Callable[[Evaluator, Any, Scope], Value]
"""Takes the kind of node that it is listed under."""

_READERS: Final[Mapping[type[ast.expr], Reader]] = {
    ast.Constant: Evaluator.constant,
    ast.JoinedStr: Evaluator.joined,
    ast.BinOp: Evaluator.binary,
    ast.Name: Evaluator.name,
    ast.Attribute: Evaluator.attribute,
    ast.Subscript: Evaluator.subscript,
    ast.List: Evaluator.items,
    ast.Tuple: Evaluator.items,
    ast.Set: Evaluator.a_set,
    ast.SetComp: Evaluator.a_set,
    ast.Dict: Evaluator.mapping,
    ast.IfExp: Evaluator.choice,
    ast.BoolOp: Evaluator.either,
    ast.ListComp: Evaluator.comprehension,
    ast.GeneratorExp: Evaluator.comprehension,
    ast.Await: Evaluator.awaited,
    ast.NamedExpr: Evaluator.named,
    ast.Call: Evaluator.called,
}
