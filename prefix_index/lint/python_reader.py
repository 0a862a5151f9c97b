"""Python sources: each module's statements in order, functions as if called with what their parameters are named.

    module ---> classes, functions (each once, and once more where it is called with something known)
      each statement ---> values (python_eval) ---> what is given to a model (python_prompts) ---> findings

Branches are read one after the other, loops once. Costs some 10 µs a node; bounded (`python_eval.MAX_STEPS`).
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prefix_index.lint.parts import in_file, merged
from prefix_index.lint.python_eval import Evaluator, TooLarge
from prefix_index.lint.python_prompts import Prompts
from prefix_index.lint.python_source import Source
from prefix_index.lint.python_values import Function, Items, Opaque, Scope, Text, Value, as_parts, gathered, written
from prefix_index.lint.types import Asked, Disorder, Read, Skipped

_HINTS: Final = ("prompt", "messages", "system", "instruction", "role", "template", "persona", "preamble")


def read_python(path: str, text: str, asked: Asked) -> Read:
    """What breaks prefixes in a module. A module that is none is `skipped`; nothing is raised, nothing is run."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return Read()
    try:
        source = Source(text)
    except SyntaxError as error:
        return Read(skipped=[Skipped(path, f"line {error.lineno or 0} is no Python: {error.msg}")])
    except (ValueError, RecursionError, MemoryError) as error:
        return Read(skipped=[Skipped(path, f"not read: {type(error).__name__}")])
    prompts = Prompts(source, in_file(path, text), asked, [])
    skipped = []
    try:
        Module(source, prompts).read()
    except (TooLarge, RecursionError):
        skipped.append(Skipped(path, "too much to follow: read in part"))
    return Read(merged(prompts.findings), skipped)


class Module:
    """Reads one module; findings go to `prompts`."""

    def __init__(self, source: Source, prompts: Prompts) -> None:
        self._source = source
        self._prompts = prompts
        self._values = Evaluator(source, self._called, prompts)
        self._functions: list[Function] = []

    def read(self) -> None:
        """Read it whole. Raises `TooLarge` or `RecursionError` where that is too much."""
        scope = Scope(is_module=True)
        self.run(self._source.tree.body, scope)
        at = 0
        while at < len(self._functions):
            function = self._functions[at]
            at += 1
            self._values.returned(function)

    def run(self, statements: Iterable[ast.stmt], scope: Scope) -> None:
        """Statements, one after the other."""
        for statement in statements:
            one = _RUNNERS.get(type(statement))
            if one is not None:
                one(self, statement, scope)
            else:
                self._blocks(statement, scope)

    def _called(self, function: Function, scope: Scope) -> Value | None:
        self.run(function.node.body, scope)
        if scope.returned is not None:
            self._prompts.named(function.node.name, scope.returned)
        return scope.returned

    def _value(self, node: ast.expr | None, scope: Scope) -> Value:
        return self._values.value(node, scope)

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        """`a = b = value`; pairs are taken apart."""
        value = self._value(node.value, scope)
        for target in node.targets:
            self._bind(target, value, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        """`a: str = value`."""
        if node.value is not None:
            self._bind(node.target, self._value(node.value, scope), scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """`a += value`."""
        added = self._value(node.value, scope)
        if not isinstance(node.op, ast.Add) or not isinstance(node.target, (ast.Name, ast.Attribute)):
            return
        before = self._values.value(node.target, scope)
        self._bind(node.target, self._sum(before, added, node), scope)

    def _sum(self, before: Value, added: Value, node: ast.AugAssign) -> Value:
        at = self._source.at(node)
        added = gathered(added) if isinstance(added, Text) else added
        if isinstance(before, Items):
            more = added.items if isinstance(added, Items) else (added,)
            return Items((*before.items, *more), before.at, before.disorder)
        if isinstance(before, Text):
            return Text((*before.parts, *as_parts(added, written(node.value), at)))
        if isinstance(before, Opaque) and isinstance(added, Text):
            return Text((*as_parts(before, before.name, at), *added.parts))
        return before

    def _bind(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, Items):
            for one, part in zip(target.elts, value.items, strict=False):
                self._bind(one, part, scope)
        elif isinstance(target, ast.Name):
            scope.names[target.id] = value
            self._prompts.named(target.id, value)
        elif isinstance(target, ast.Attribute):
            own_class = scope.class_around()
            if isinstance(target.value, ast.Name) and target.value.id == "self" and own_class is not None:
                own_class.names.setdefault(target.attr, value)
            self._prompts.named(target.attr, value)

    def expression(self, node: ast.Expr, scope: Scope) -> None:
        """A call for what it does: lists grow, are shuffled, lose their head."""
        self._value(node.value, scope)
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return
        if self._source.full_name(written(call.func)) == "random.shuffle" and call.args:
            self._mark(call.args[0], Disorder.SHUFFLED, scope)
        elif call.func.attr == "pop" and _is_head(call.args):
            self._mark(call.func.value, Disorder.CUT, scope)
        elif call.func.attr in {"append", "extend"} and call.args:
            self._grow(call, call.func, scope)

    def _grow(self, call: ast.Call, func: ast.Attribute, scope: Scope) -> None:
        before = self._values.value(func.value, scope)
        if isinstance(before, Items):
            added = self._values.value(call.args[0], scope)
            added = gathered(added) if isinstance(added, Text) else added
            more = added.items if func.attr == "extend" and isinstance(added, Items) else (added,)
            self._rebind(func.value, Items((*before.items, *more), before.at, before.disorder), scope)

    def _mark(self, target: ast.expr, disorder: Disorder, scope: Scope) -> None:
        marked = self._values.opaque(target, scope, written(target), disorder)
        self._rebind(target, marked, scope)

    def _rebind(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Attribute) and (own_class := scope.class_around()) is not None:
            own_class.names[target.attr] = value

    def returned(self, node: ast.Return, scope: Scope) -> None:
        """What a function gives: the longest text of several."""
        value = self._value(node.value, scope)
        if scope.returned is None or _weight(value) > _weight(scope.returned):
            scope.returned = value

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        """A function is known by its name from here on, and read once the module is."""
        made = Function(node, scope, is_method=scope.own_class is scope and not _is_static(node))
        scope.names[node.name] = made
        self._functions.append(made)

    def a_class(self, node: ast.ClassDef, scope: Scope) -> None:
        """A class: what stands in it is what `self` has."""
        inner = Scope(above=scope, is_module=scope.is_module)
        inner.own_class = inner
        self.run(node.body, inner)

    def loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        """A loop, once; what it goes through is as ordered as what it goes over."""
        over = self._value(node.iter, scope)
        if isinstance(node.target, ast.Name):
            origin = over.origin if isinstance(over, Opaque) else ""
            disorder = over.disorder if isinstance(over, (Opaque, Items)) else None
            scope.names[node.target.id] = Opaque(node.target.id, self._source.at(node.target), origin, each=disorder)
        self.run(node.body, scope)
        self.run(node.orelse, scope)

    def _blocks(self, node: ast.stmt, scope: Scope) -> None:
        """All other statements: their expressions, then their blocks in order."""
        for _, field in ast.iter_fields(node):
            for one in field if isinstance(field, list) else (field,):
                if isinstance(one, ast.stmt):
                    self.run((one,), scope)
                elif isinstance(one, ast.expr):
                    self._value(one, scope)
                elif isinstance(one, (ast.ExceptHandler, ast.match_case)):
                    self.run(one.body, scope)
                elif isinstance(one, ast.withitem):
                    self._value(one.context_expr, scope)


def _is_head(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value in {0, 1}


def _is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)


def _weight(value: Value) -> int:
    return sum(len(part.text) for part in value.parts) if isinstance(value, Text) else -1


Runner = Callable[[Module, Any, Scope], None]
"""Takes the kind of statement that it is listed under."""

_RUNNERS: Final[Mapping[type[ast.stmt], Runner]] = {
    ast.Assign: Module.assign,
    ast.AnnAssign: Module.annotated,
    ast.AugAssign: Module.augmented,
    ast.Expr: Module.expression,
    ast.Return: Module.returned,
    ast.FunctionDef: Module.function,
    ast.AsyncFunctionDef: Module.function,
    ast.ClassDef: Module.a_class,
    ast.For: Module.loop,
    ast.AsyncFor: Module.loop,
}
