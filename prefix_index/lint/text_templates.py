"""Prompts written as text with placeholders, as parts: Jinja, `str.format` and what looks like it.

    You help {{ user }}. {% for d in docs %}{{ d }}{% endfor %} Answer briefly.
    fixed    slot        slot: as long as the list is              fixed

Which syntax a text has is seen from its braces: where single ones name things and double ones escape, as `str.format`
reads them, it is that; else Jinja where it has tags. Any text can be read; an unclosed tag is text. O(length).
"""

import re
from collections.abc import Iterator
from string import Formatter
from typing import Final

from prefix_index.layout import Cause, judged_name
from prefix_index.lint.types import Part

_FIELD: Final = re.compile(r"\{([A-Za-z_]\w{0,63}(?:\.\w{1,63}|\[[\w'\"]{1,63}\]){0,4})(![rsa])?(:[^{}\n]{0,32})?\}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[\w+\])*")
_F_STRING: Final = re.compile(r"(?<![A-Za-z])[fF][\"']")
_LINE_CHARS: Final = 200
_CLOSERS: Final = {"{{": "}}", "{%": "%}", "{#": "#}"}
_FOR: Final = re.compile(r"\s*-?\s*for\b.{1,80}?\bin\b\s*(?P<over>.{1,120}?)\s*-?\s*$", re.DOTALL)
_SET: Final = re.compile(r"\s*-?\s*set\s+(?P<name>\w{1,64})\s*=\s*(?P<value>.{1,200}?)\s*-?\s*$", re.DOTALL)
_NAMED: Final = re.compile(r"[-+\s]*[^\W\d]")
"""An expression that begins with a name. All else in double braces is JSON, or a text in quotes."""


_BY_CALL: Final = frozenset({Cause.TIME, Cause.DATE, Cause.EPOCH, Cause.UUID, Cause.RANDOM, Cause.REQUEST_ID})
"""What a call is believed to give, by its name; the words in a call say little of anything else."""


def slot(name: str, at: int, origin: str = "") -> Part:
    """A slot, judged by what it is made from where that tells something, else by its name."""
    volatility, cause = judged_name(origin or name)
    is_call = "(" in origin
    if origin and (cause is Cause.UNKNOWN or (is_call and cause not in _BY_CALL)):
        volatility, cause = judged_name(name)
    return Part(name, at, volatility, cause, origin=origin, is_slot=True)


def parts_of_text(text: str) -> list[Part]:
    """The parts of a template; offsets are those in `text`."""
    if "{" not in text:
        return [Part(text, 0)] if text else []
    return list(_jinja(text) if _is_jinja(text) else _fields(text))


def _is_jinja(text: str) -> bool:
    if "{%" in text and "%}" in text:
        return True
    return "{{" in text and not _is_format(text)


def _is_format(text: str) -> bool:
    """Whether `str.format` takes it, naming at least one thing; then double braces are escapes."""
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError:
        return False
    return bool(names) and all(_NAME.fullmatch(name) for name in names)


def _fields(text: str) -> Iterator[Part]:
    begun = 0
    for match in _FIELD.finditer(text):
        start, end = match.span()
        if (text[start - 1 : start] == "{" and text[end : end + 1] == "}") or _is_in_code(text, start):
            continue
        if start > begun:
            yield Part(text[begun:start], begun)
        yield slot(match[1], start)
        begun = end
    if begun < len(text):
        yield Part(text[begun:], begun)


def _is_in_code(text: str, at: int) -> bool:
    """Whether a brace stands in an f-string of code that the text shows."""
    line = text[max(text.rfind("\n", 0, at) + 1, at - _LINE_CHARS) : at]
    return _F_STRING.search(line) is not None


def _jinja(text: str) -> Iterator[Part]:
    """Text between tags is fixed, but inside a loop, where there is as much of it as the list is long."""
    made: dict[str, str] = {}
    loops = begun = 0
    for start, end, body in _tags(text):
        if start > begun and not loops:
            yield Part(text[begun:start], begun)
        begun = end
        kind, word = text[start : start + 2], _word(body)
        if kind == "{%":
            loop = _FOR.match(body)
            if loop and not loops:
                yield _expression(loop["over"], start, made)
            loops += (loop is not None) - (loops > 0 and word == "endfor")
            assigned = _SET.match(body)
            if assigned:
                made[assigned["name"]] = assigned["value"]
        elif kind == "{{" and _NAMED.match(body) and not loops:
            yield _expression(body, start, made)
    if begun < len(text):
        yield Part(text[begun:], begun)


def _expression(body: str, at: int, made: dict[str, str]) -> Part:
    said = body.strip().strip("-+").strip()
    name = said.partition("|")[0].strip() or said
    return slot(" ".join(name.split())[:80], at, made.get(name, ""))


def _tags(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and inside of each tag. What is in `raw` is text."""
    at, raw = text.find("{"), False
    while at >= 0:
        # `${{ x }}` is an expression of a workflow, and no slot of a prompt.
        closer = None if text[at - 1 : at] == "$" else _CLOSERS.get(text[at : at + 2])
        end = -1 if closer is None else text.find(closer, at + 2)
        if closer is not None and end < 0:
            return
        if closer is None:
            at = text.find("{", at + 1)
            continue
        body = text[at + 2 : end]
        is_tag = not raw or (closer == "%}" and _word(body) == "endraw")
        if closer == "%}":
            raw = _word(body) == "raw" or (raw and _word(body) != "endraw")
        if is_tag:
            yield at, end + 2, body
        at = text.find("{", end + 2 if is_tag else at + 2)


def _word(body: str) -> str:
    words = body.strip().strip("-+").split(None, 1)
    return words[0] if words else ""
