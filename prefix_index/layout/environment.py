"""The Jinja in which prompts are written: the sandbox of chat templates, with blocks that leave white space alone.

A variable that is missing is an error and no empty text. There is no clock, no chance and nothing to include: what
changes comes in as a variable, so that a template says by itself what is fixed in it.

The variables are a client's, so what one call may cost is bounded, whatever they are:

    steps of all loops, and calls              a budget of the render            (as in chat templates), call
    characters printed, also into variables    a budget of the render            finalize
    ... put together by `~` and `+`, as JSON   the same                          visit_Concat, call_binop, filters
    repeating, padding, formatting, numbers    bounded, or refused               call_binop, wrap_str_format
    replacing, joining, indenting, rows        bounded before they are done      the filters below
    bytes                                      there are none                    is_safe_attribute
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import jinja2
from jinja2 import filters, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context

from prefix_index.prompt.template_language import BUDGET, ChatEnvironment

MOST_CHARS: Final = 16 * 1024 * 1024
"""Of what one replacement or one joining may make."""
_MOST_INDENT: Final = 64
_MOST_PARTS: Final = 10_000
"""Of a row or of rows that a filter fills up."""
_MOST_BITS: Final = 1024
"""Of a product of whole numbers."""
_NOT_HERE: Final = ("lipsum", "cycler", "joiner")
_FILTERS_NOT_HERE: Final = ("center", "format", "random", "urlize", "xmlattr", "pprint")
_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map", "translate"})
"""Methods of texts whose result may be far longer than what is given."""


class _Generator(CodeGenerator):
    """Has the environment put texts together."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.beside(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class PromptEnvironment(ChatEnvironment):
    """As Jinja is by itself, but that it keeps the last newline."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    code_generator_class = _Generator

    def __init__(self) -> None:
        super().__init__()
        self.trim_blocks = self.lstrip_blocks = False
        self.keep_trailing_newline = True
        self.undefined = jinja2.StrictUndefined
        self.finalize = _printed
        for name in _NOT_HERE:
            self.globals.pop(name, None)
        for name in _FILTERS_NOT_HERE:
            self.filters.pop(name, None)
        self.filters |= {
            "replace": _replaced,
            "join": _joined,
            "indent": _indented,
            "batch": _batched,
            "slice": _sliced,
            "wordwrap": _wrapped,
            "sum": _summed,
            "tojson": _as_json,
        }

    def beside(self, context: Context, parts: Sequence[object]) -> str:
        """`a ~ b ~ c`."""
        texts = [str(part) for part in parts]
        _charge(context, sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Context, __obj: object, *args: object, **kwargs: object) -> object:
        """Call a macro, or what else may be called; it takes a step of the budget of loops."""
        budget = __context.resolve(BUDGET)
        if isinstance(budget, list):
            budget[0] -= 1
            if budget[0] < 0:
                raise jinja2.TemplateRuntimeError("the template calls too much")
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """As in the sandbox; and nothing makes bytes, whose methods pad and repeat too."""
        return attr not in {"encode", "to_bytes"} and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """As in chat templates; and `%` is for numbers."""
        if operator == "%" and isinstance(left, str | bytes):
            raise jinja2.TemplateRuntimeError("texts are not formatted by % here")
        if operator == "*" and _bits(left) + _bits(right) > _MOST_BITS:
            raise jinja2.TemplateRuntimeError("a number in the template is too high")
        if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            _charge(context, len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        """What stands for a method of a text: formatting is refused, for a text of a client would say how long the
        result is; replacing and joining are bounded; None for any other."""
        text, method = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if not isinstance(text, str):
            return None
        if method in _PADDING:
            raise jinja2.exceptions.SecurityError("texts are neither formatted nor padded here")
        match method:
            case "replace":
                return lambda old, new, count=-1: _replaced(text, old, new, None if count < 0 else count)
            case "join":
                return lambda items: _bounded_join(text, [str(item) for item in items])
            case _:
                return None


@jinja2.pass_context
def _printed(context: Context, value: object) -> str:
    """Each text that is printed, where it is printed to the prompt, or kept for later."""
    text = value if isinstance(value, str) else str(value)
    _charge(context, len(text))
    return text


def _bits(value: object) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _charge(context: Context, chars: int) -> None:
    """Take characters from the budget of the render. Raises `TemplateRuntimeError` where there are none left."""
    budget = context.resolve(BUDGET)
    if isinstance(budget, list):
        budget[1] -= chars
        if budget[1] < 0:
            raise jinja2.TemplateRuntimeError("the template writes too much")


def _replaced(text: object, old: str, new: str, count: int | None = None) -> str:
    source = str(text)
    times = source.count(old) if count is None else min(source.count(old), count)
    if len(source) + times * len(new) > MOST_CHARS:
        raise jinja2.TemplateRuntimeError("a replacement in the template is too long")
    return source.replace(old, new, -1 if count is None else count)


@jinja2.pass_eval_context
def _joined(
    evaluation: jinja2.nodes.EvalContext, value: Iterable[object], d: str = "", attribute: str | int | None = None
) -> str:
    items = value if attribute is None else map(filters.make_attrgetter(evaluation.environment, attribute), value)
    return _bounded_join(str(d), [str(item) for item in items])


def _bounded_join(between: str, items: list[str]) -> str:
    if sum(map(len, items)) + len(items) * len(between) > MOST_CHARS:
        raise jinja2.TemplateRuntimeError("a joined text in the template is too long")
    return between.join(items)


def _indented(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if (width if isinstance(width, int) else len(width)) > _MOST_INDENT:
        raise jinja2.TemplateRuntimeError(f"a template indents by at most {_MOST_INDENT}")
    return filters.do_indent(text, width, first, blank)


def _batched(value: Iterable[object], linecount: int, fill_with: object = None) -> Iterator[list[object]]:
    if not 0 < linecount <= _MOST_PARTS:
        raise jinja2.TemplateRuntimeError(f"a template makes rows of at most {_MOST_PARTS:,}")
    return filters.do_batch(value, linecount, fill_with)


@jinja2.pass_environment
def _sliced(
    environment: jinja2.Environment, value: Collection[object], slices: int, fill_with: object = None
) -> Iterator[list[object]]:
    del environment
    if not 0 < slices <= _MOST_PARTS:
        raise jinja2.TemplateRuntimeError(f"a template makes at most {_MOST_PARTS:,} slices")
    return filters.sync_do_slice(value, slices, fill_with)


@jinja2.pass_environment
def _wrapped(
    environment: jinja2.Environment,
    s: str,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    if wrapstring is not None and len(wrapstring) > _MOST_INDENT:
        raise jinja2.TemplateRuntimeError(f"a template wraps by at most {_MOST_INDENT} characters")
    return filters.do_wordwrap(environment, s, width, break_long_words, wrapstring, break_on_hyphens)


@jinja2.pass_environment
def _summed(
    environment: jinja2.Environment, iterable: Iterable[object], attribute: str | int | None = None, start: float = 0
) -> float:
    items = iterable if attribute is None else map(filters.make_attrgetter(environment, attribute), iterable)
    numbers: list[float] = []
    for item in (start, *items):
        if not isinstance(item, int | float):
            raise jinja2.TemplateRuntimeError("only numbers are summed here")
        numbers.append(item)
    return sum(numbers)


@jinja2.pass_context
def _as_json(context: Context, value: object, indent: int | None = None, sort_keys: bool = False) -> str:
    """Without HTML's escapes, as in chat templates."""
    if indent is not None and not 0 <= indent <= _MOST_INDENT:
        raise jinja2.TemplateRuntimeError(f"a template indents by at most {_MOST_INDENT}")
    text = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort_keys)
    _charge(context, len(text))
    return text


PROMPTS: Final = PromptEnvironment()
