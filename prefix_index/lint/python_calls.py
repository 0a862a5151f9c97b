"""Calls in a module: text methods, list methods, messages of known libraries, functions of the module itself."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prefix_index.lint.python_format import dollar_formatted, formatted, replaced
from prefix_index.lint.python_values import (
    Function,
    Items,
    Message,
    Opaque,
    Scope,
    Template,
    Text,
    Value,
    disorder_of,
    joined,
    slot_of,
    written,
)
from prefix_index.lint.types import Disorder

if TYPE_CHECKING:
    from prefix_index.lint.python_eval import Evaluator

MESSAGE_CALLS: Final[Mapping[str, str]] = {
    "SystemMessage": "system",
    "HumanMessage": "user",
    "UserMessage": "user",
    "AIMessage": "assistant",
    "AssistantMessage": "assistant",
    "SystemMessagePromptTemplate": "system",
    "HumanMessagePromptTemplate": "user",
    "AIMessagePromptTemplate": "assistant",
}
"""Classes of LangChain and its like that are a message."""
TEMPLATE_CALLS: Final = frozenset({"PromptTemplate", "from_template", "ChatPromptTemplate", "StringPromptTemplate"})
_SAME_TEXT: Final = frozenset({"strip", "lstrip", "rstrip", "dedent", "cleandoc", "lower", "upper", "expandtabs"})
_AS_TEXT: Final = frozenset({"str", "repr", "dedent", "cleandoc", "escape"})
_SHUFFLES: Final = frozenset({"random.sample", "random.choices", "random.shuffle"})
_ORDERED: Final = frozenset({"list", "tuple", "reversed", "enumerate"})
_UNORDERED: Final = frozenset({"len", "sum", "min", "max", "any", "all", "bool", "next", "int", "float", "hash", "id"})
"""What they say of a list is the same in any order."""
_BY_SCORE: Final = ("score", "similarity", "distance", "relevance", "rank")
_SEARCHES: Final = frozenset(
    {
        *("similarity_search", "similarity_search_with_score", "max_marginal_relevance_search"),
        *("get_relevant_documents", "aget_relevant_documents", "retrieve", "rerank", "vector_search"),
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its arguments evaluated. `name` is the callee in full, `last` the last name in it."""

    node: ast.Call
    at: int
    name: str
    last: str
    owner: Value | None
    given: Sequence[Value]
    named: Mapping[str, Value]

    def argument(self, *names: str) -> Value | None:
        """The first positional argument, or the one of these names."""
        found = next((self.named[name] for name in names if name in self.named), None)
        return found if found is not None else next(iter(self.given), None)


def called(reader: "Evaluator", node: ast.Call, scope: Scope) -> Value:
    """What a call comes to."""
    call = _read(reader, node, scope)
    reader.sees.call(call.name, call.last, call.given, call.named)
    for attempt in (_of_text, _of_template, _message, _ordering, _of_module):
        found = attempt(reader, call, scope)
        if found is not None:
            return found
    return _opaque(reader, call, scope)


def _read(reader: "Evaluator", node: ast.Call, scope: Scope) -> Call:
    func = node.func
    owner = reader.value(func.value, scope) if isinstance(func, ast.Attribute) else None
    name = reader.source.full_name(written(func)) if isinstance(func, (ast.Name, ast.Attribute)) else ""
    given = [reader.value(one.value if isinstance(one, ast.Starred) else one, scope) for one in node.args]
    named = {one.arg: reader.value(one.value, scope) for one in node.keywords if one.arg is not None}
    return Call(node, reader.source.at(node), name, name.rpartition(".")[2], owner, given, named)


def _of_text(reader: "Evaluator", call: Call, scope: Scope) -> Value | None:
    """Methods of text, and what makes text of a value."""
    owner = call.owner
    if isinstance(owner, Text):
        if call.last in {"format", "format_map"}:
            return formatted(owner, call.given, call.named)
        if call.last == "join":
            return _join(owner, call)
        if call.last == "replace" and len(call.given) == 2:
            what = _literal(call.given[0])
            return replaced(owner, what, call.given[1]) if what else owner
        if call.last in _SAME_TEXT:
            return owner
    if call.last in _AS_TEXT and call.given and (owner is None or isinstance(owner, Opaque)):
        value = call.given[0]
        return value if isinstance(value, (Text, Opaque)) else None
    return None


def _join(between: Text, call: Call) -> Value | None:
    value = call.argument("iterable")
    if isinstance(value, Items) and value.disorder is None:
        return joined(value.items, between.parts, call.at)
    if isinstance(value, Opaque):
        return Text((slot_of(value, value.name, call.at),))
    return None


def _literal(value: Value) -> str:
    return value.parts[0].text if isinstance(value, Text) and len(value.parts) == 1 else ""


def _of_template(reader: "Evaluator", call: Call, scope: Scope) -> Value | None:
    """`string.Template`, and templates of LangChain and Jinja."""
    owner = call.owner
    if isinstance(owner, Template):
        if owner.marks == "$" and call.last in {"substitute", "safe_substitute"}:
            return dollar_formatted(owner.text, call.named)
        if call.last in {"format", "render", "invoke", "format_messages", "partial"}:
            return formatted(owner.text, call.given, call.named)
        return None
    if call.name == "string.Template" and isinstance(text := call.argument("template"), Text):
        return Template(text, "$")
    is_template = call.last in TEMPLATE_CALLS and "MessagePromptTemplate" not in call.name
    if is_template and isinstance(text := call.argument("template"), Text):
        return Template(text)
    return None


def _message(reader: "Evaluator", call: Call, scope: Scope) -> Value | None:
    """Messages by the classes of known libraries."""
    name = call.last if call.last in MESSAGE_CALLS else call.name.rpartition(".")[0].rpartition(".")[2]
    if name not in MESSAGE_CALLS:
        return None
    content = call.argument("content", "template", "prompt")
    if content is None:
        return None
    message = Message(MESSAGE_CALLS[name], content.text if isinstance(content, Template) else content)
    reader.sees.message(message)
    return message


def _ordering(reader: "Evaluator", call: Call, scope: Scope) -> Value | None:
    """What puts a list in an order: a shuffle, a set, a score; sorting by anything else makes it good again."""
    first = next(iter(call.given), None)
    if call.name in _SHUFFLES and not _is_of_letters(call.node):
        return reader.opaque(call.node, scope, call.name, Disorder.SHUFFLED)
    if call.name in {"set", "frozenset"}:
        return reader.opaque(call.node, scope, "", Disorder.SET)
    if call.last in _SEARCHES:
        return reader.opaque(call.node, scope, "documents", Disorder.BY_SCORE)
    if call.name == "sorted":
        key = written(call.node).lower()
        disorder = Disorder.BY_SCORE if "key" in key and any(word in key for word in _BY_SCORE) else None
        return reader.opaque(call.node, scope, "", disorder)
    if call.name in _ORDERED and first is not None and disorder_of(first) is not None:
        return reader.opaque(call.node, scope, "", disorder_of(first))
    return None


def _is_of_letters(node: ast.Call) -> bool:
    """Whether what is drawn are letters: an id at random, and no examples."""
    drawn = written(node.args[0]) if node.args else ""
    return drawn.startswith(("'", '"')) or "ascii_" in drawn or "string." in drawn


def _of_module(reader: "Evaluator", call: Call, scope: Scope) -> Value | None:
    """A function or method of the module itself."""
    function = _callee(reader, call, scope)
    if function is None:
        return None
    names = [one.arg for one in (*function.node.args.posonlyargs, *function.node.args.args)]
    if function.is_method and names:
        names = names[1:]
    return reader.call(function, {**dict(zip(names, call.given, strict=False)), **call.named})


def _callee(reader: "Evaluator", call: Call, scope: Scope) -> Function | None:
    func = call.node.func
    found: Value | None = None
    if isinstance(func, ast.Name):
        found = scope.find(func.id)
    elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in {"self", "cls"}:
        own_class = scope.class_around()
        found = None if own_class is None else own_class.names.get(func.attr)
    return found if isinstance(found, Function) else None


def _opaque(reader: "Evaluator", call: Call, scope: Scope) -> Value:
    """All else, known by its name; what it does to something that changes, changes too."""
    shown = written(call.node)
    owner = call.owner
    if isinstance(owner, Opaque) and "(" in owner.origin:
        return reader.opaque(call.node, scope, _after(owner.origin, call), owner.disorder)
    tainted = next((one for one in call.given if isinstance(one, Opaque) and "(" in one.origin), None)
    origin = reader.source.full_name(shown)
    if tainted is not None and not call.name.startswith(("datetime", "time.", "uuid", "random")):
        origin = f"{call.last}({tainted.origin})"
    disorder = next(filter(None, map(disorder_of, call.given)), disorder_of(owner))
    return reader.opaque(call.node, scope, origin, None if call.name in _UNORDERED else disorder)


def _after(origin: str, call: Call) -> str:
    """The expression that a method was called on, and the method: `datetime.now()` and `date()` are the date."""
    if call.last == "date" and "now(" in origin:
        return "datetime.date.today()"
    layout = next((_literal(one) for one in call.given), "")
    return f"{origin}.{call.last}('{layout}')" if layout else f"{origin}.{call.last}()"
