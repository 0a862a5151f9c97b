"""The Jinja in which prompts are written: the sandbox of chat templates, with blocks that leave white space alone.

A variable that is missing is an error and no empty text. There is no clock, no chance and nothing to include: what
changes comes in as a variable, so that a template says by itself what is fixed in it.

The variables are a client's, so what one call may cost is bounded, whatever they are:

    steps of all loops                         a budget of the render            (as in chat templates)
    characters printed, also into variables    a budget of the render            finalize
    repeating, padding, formatting             bounded, or refused               call_binop, wrap_str_format
    replacing, joining, indenting              bounded before they are done      the functions below
"""

from collections.abc import Callable, Iterable
from typing import Final

import jinja2
from jinja2 import filters
from jinja2.runtime import Context

from prefix_index.prompt.template_language import BUDGET, ChatEnvironment

MOST_CHARS: Final = 16 * 1024 * 1024
"""Of what one replacement or one joining may make."""
_MOST_INDENT: Final = 64
_NOT_HERE: Final = ("lipsum", "cycler", "joiner")
_FILTERS_NOT_HERE: Final = ("center", "format", "random")
_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map", "translate"})
"""Methods of texts whose result may be far longer than what is given."""


class PromptEnvironment(ChatEnvironment):
    """As Jinja is by itself, but that it keeps the last newline."""

    intercepted_binops = frozenset({"*", "**", "%"})

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
        self.filters |= {"replace": _replaced, "join": _joined, "indent": _indented}

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """As in chat templates; and `%` is for numbers."""
        if operator == "%" and isinstance(left, str | bytes):
            raise jinja2.TemplateRuntimeError("texts are not formatted by % here")
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
    budget = context.resolve(BUDGET)
    if isinstance(budget, list):
        budget[1] -= len(text)
        if budget[1] < 0:
            raise jinja2.TemplateRuntimeError("the template writes too much")
    return text


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


PROMPTS: Final = PromptEnvironment()
