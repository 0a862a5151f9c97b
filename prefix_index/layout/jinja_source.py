"""A Jinja source cut into what it prints, and what each piece reads.

    text {{ expression }} text {% if ... %} ... {% endif %} {# remark #}
    `--' `--------------' `--' `-------------------------' `----------'
    fixed      slot       fixed     one control piece        one more

Pieces are slices of the source. What a piece reads is told by Jinja's own syntax tree.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import jinja2
from jinja2 import meta, nodes

from prefix_index.layout.errors import TemplateInvalid
from prefix_index.layout.template import SegmentKind

_OPENING: Final = re.compile(r"\{[{%#]")
_INSIDE: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[({\[]|[)\]}]|%\}""", re.DOTALL)
_TAG: Final = re.compile(r"\{%[-+]?\s*(\w+)")
_END_RAW: Final = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_ASSIGNS: Final = re.compile(r"\{%[-+]?\s*set\s[^%]*?(?<![=!<>])=(?!=)")
_BLOCKS: Final = frozenset({"if", "for", "with", "filter", "call", "macro", "block", "autoescape"})
_STATEMENTS: Final = frozenset({"set", "import", "from", "include", "extends", "macro", "block"})
"""What other pieces may depend on."""
_SILENT: Final = frozenset({"set", "import", "from", "macro"})


@dataclass(frozen=True, slots=True)
class JinjaPiece:
    """A slice of a source. `anchored` says why it has to stay where it is; `silent`: it prints nothing by itself."""

    kind: SegmentKind
    start: int
    end: int
    anchored: str | None = None
    silent: bool = False


def jinja_pieces(source: str) -> Iterator[JinjaPiece]:
    """The pieces of a source, in order, without a gap. Raises `TemplateInvalid` where something is not closed."""
    at = 0
    while (found := _OPENING.search(source, at)) is not None:
        start = found.start()
        if start > at:
            yield JinjaPiece(SegmentKind.FIXED, at, start)
        match found[0]:
            case "{#":
                at = _after(source, "#}", start)
                yield JinjaPiece(SegmentKind.CONTROL, start, at)
            case "{{":
                at = _closed(source, start, "}}")
                yield JinjaPiece(SegmentKind.SLOT, start, at, _trimming(source[start:at]))
            case _:
                piece = _control(source, start)
                at = piece.end
                yield piece
    if at < len(source):
        yield JinjaPiece(SegmentKind.FIXED, at, len(source))


def _control(source: str, start: int) -> JinjaPiece:
    """A statement, with all that it encloses."""
    end, tags = _tag_end(source, start)
    depth = _depth_of(source, start)
    while depth:
        found = _OPENING.search(source, end)
        if found is None:
            raise TemplateInvalid(f"{{% {tags} %}} at character {start} is not closed")
        if found[0] == "{%":
            depth += _depth_of(source, found.start())
            end, _ = _tag_end(source, found.start())
        elif found[0] == "{{":
            end = _closed(source, found.start(), "}}")
        else:
            end = _after(source, "#}", found.start())
    anchored = f"{{% {tags} %}} has to stand before what depends on it" if tags in _STATEMENTS else None
    return JinjaPiece(SegmentKind.CONTROL, start, end, anchored or _trimming(source[start:end]), tags in _SILENT)


def _tag_end(source: str, start: int) -> tuple[int, str]:
    named = _TAG.match(source, start)
    if named is None:
        raise TemplateInvalid(f"a statement at character {start} has no name")
    end = _closed(source, start, "%}")
    if named[1] != "raw":
        return end, named[1]
    closing = _END_RAW.search(source, end)
    if closing is None:
        raise TemplateInvalid(f"{{% raw %}} at character {start} is not closed")
    return closing.end(), "raw"


def _depth_of(source: str, start: int) -> int:
    named = _TAG.match(source, start)
    tag = "" if named is None else named[1]
    if tag.startswith("end"):
        return -1
    return int(tag in _BLOCKS or (tag == "set" and _ASSIGNS.match(source, start) is None))


def _after(source: str, closing: str, start: int) -> int:
    end = source.find(closing, start)
    if end < 0:
        raise TemplateInvalid(f"what begins at character {start} is not closed by {closing}")
    return end + len(closing)


def _closed(source: str, start: int, closing: str) -> int:
    """Behind the end of an expression or statement; its strings and brackets may hold what looks like it."""
    at, depth = start + 2, 0
    while (found := _INSIDE.search(source, at)) is not None:
        sign, at = found[0], found.end()
        if sign == closing:
            return at
        if depth == 0 and sign == "}" and closing == "}}" and source.startswith("}}", found.start()):
            return found.start() + 2
        depth += (sign in "({[") - (sign in ")]}")
    raise TemplateInvalid(f"what begins at character {start} is not closed by {closing}")


def _trimming(source: str) -> str | None:
    trims = source[2:3] == "-" or source[-3:-2] == "-"
    return "it takes away the white space around it" if trims else None


@dataclass(frozen=True, slots=True)
class Reads:
    """How a piece reads a variable: in which expressions, and whether it only asks about it and prints none of it."""

    expressions: tuple[str, ...]
    only_asks: bool


def read_by(environment: jinja2.Environment, source: str) -> dict[str, Reads]:
    """The variables that a piece reads, and how: `user.name`, `now()`. Raises `TemplateInvalid` with the line."""
    try:
        tree = environment.parse(source)
        outside = meta.find_undeclared_variables(tree) - set(environment.globals)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateInvalid(f"line {error.lineno}: {error.message}") from None
    except RecursionError:
        raise TemplateInvalid("it is nested too deeply") from None
    found: dict[str, dict[str, None]] = {name: {} for name in sorted(outside)}
    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call)):
        root, text = _expression(node)
        if root in found:
            found[root][text] = None
    everywhere = Counter(node.name for node in tree.find_all(nodes.Name))
    asked = Counter(name for test in _tests(tree) for name in _names_in(test))
    return {name: Reads(tuple(texts), asked[name] >= everywhere[name]) for name, texts in found.items()}


def _tests(tree: nodes.Template) -> Iterator[nodes.Node]:
    yield from (choice.test for choice in tree.find_all(nodes.If))
    yield from (choice.test for choice in tree.find_all(nodes.CondExpr))


def _names_in(test: nodes.Node) -> Iterator[str]:
    if isinstance(test, nodes.Name):
        yield test.name
    yield from (node.name for node in test.find_all(nodes.Name))


def refused_in(environment: jinja2.Environment, source: str) -> str | None:
    """What in a template no variable can fill: other files, and variables called as if they were functions."""
    tree = environment.parse(source)
    if next(tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)), None) is not None:
        return "there are no other files to include, import or extend"
    outside = meta.find_undeclared_variables(tree) - set(environment.globals)
    called = {call.node.name for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Name)} & outside
    if called:
        return f"{', '.join(sorted(called))} would be called, and variables are data: pass what it gives"
    return None


def _expression(node: nodes.Node) -> tuple[str, str]:
    """The variable at the root of an expression, and the expression as people write it, as far as it matters."""
    match node:
        case nodes.Name():
            return node.name, node.name
        case nodes.Getattr():
            root, text = _expression(node.node)
            return root, f"{text}.{node.attr}"
        case nodes.Getitem():
            root, text = _expression(node.node)
            return root, f"{text}.{node.arg.value}" if isinstance(node.arg, nodes.Const) else text
        case nodes.Call():
            root, text = _expression(node.node)
            given = ", ".join(repr(arg.value) for arg in node.args if isinstance(arg, nodes.Const))
            return root, f"{text}({given})"
        case _:
            return "", ""
