"""The dialect of Jinja in which chat templates are written, as Hugging Face `transformers` runs it, with bounds.

Blocks eat their newline and the indent before them, `{% break %}` and `{% continue %}` exist, `tojson` is plain
`json.dumps` without HTML escapes, `{% generation %}` marks text for training and prints it, `raise_exception(text)`
refuses. All of it is here, or the text differs in places nobody looks at.

A template is the operator's file but its input is any client's, so a render is bounded: the sandbox forbids changing
the input and reaching into Python; loops together take `MAX_LOOP_STEPS` steps, repetition is held to
`MAX_RENDERED_CHARS`. Not bounded is what one filter is told to pad or format by the template's own text.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

_PLACES = frozenset({"first", "last", "index", "index0", "revindex", "length", "previtem", "nextitem"})
"""What templates ask of a loop, all of it safe."""

_DICT_ATTRIBUTES = frozenset(dir(dict))
"""They win over keys of the same name."""

MAX_RENDERED_CHARS = 64 * 1024 * 1024
MAX_LOOP_STEPS = 1_000_000

BUDGET = "loop steps left"
"""Template variable: a list of one number. The spaces in its name keep templates from reading it."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox and dialect of transformers, with repetition and powers bounded as well."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self.filters["tojson"] = _tojson
        self.filters[BUDGET] = _counted
        self.globals["raise_exception"] = _raise_exception

    def getattr(self, obj: object, attribute: str) -> object:
        """`obj.attribute` as the sandbox has it; what is looked up most, keys and places in loops, without its detours.

        They were half of the time of templates that write `message.role`, or ask for `loop.first`, of each message.
        """
        if type(obj) is not dict or attribute in _DICT_ATTRIBUTES:
            if type(obj) is LoopContext and attribute in _PLACES:
                return getattr(obj, attribute)
            return super().getattr(obj, attribute)
        try:
            return obj[attribute]
        except KeyError:
            return self.undefined(obj=obj, name=attribute)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Do `left operator right`, unless the result would be huge."""
        if operator == "*" and _repeated_length(left, right) > MAX_RENDERED_CHARS:
            raise jinja2.TemplateRuntimeError("a repetition in the template is too long")
        if operator == "**" and not (isinstance(right, int | float) and abs(right) <= 64):
            raise jinja2.TemplateRuntimeError("a power in the template is too high")
        return super().call_binop(context, operator, left, right)

    def prepare(self, tree: nodes.Template) -> None:
        """Let each loop in `tree` take its steps from the render's budget. Changes `tree`."""
        for loop in list(tree.find_all(nodes.For)):
            counted = nodes.Filter(loop.iter, BUDGET, [], [], None, None, lineno=loop.lineno)
            loop.iter = counted.set_environment(self)


class _GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}` prints what it encloses; only training tools look at the tag."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """A call block, as in transformers: what is set inside stays inside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_enclosed"), [], [], body).set_lineno(line)

    @staticmethod
    def _enclosed(caller: Macro) -> str:
        return str(caller())


@jinja2.pass_context
def _counted(context: Context, items: Iterable[object]) -> Iterator[object]:
    budget = context.resolve(BUDGET)
    for item in items:
        budget[0] -= 1
        if budget[0] < 0:
            raise jinja2.TemplateRuntimeError("the template loops too long")
        yield item


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _repeated_length(left: object, right: object) -> int:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
            return len(sequence) * times
    return 0
