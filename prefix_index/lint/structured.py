"""JSON, JSON Lines and YAML: captured requests, or templates in strings.

    {"messages": ...}, {"request": {...}}, one a line      requests, in order            -> capture_reader
    prompt: |  ...  {{ x }} ...                            strings with placeholders     -> text_templates

A string is a prompt where its key says so, or where it stands in a message with a role. In a file that was named by
itself every long string is looked at.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from prefix_index.lint.capture_reader import Captured
from prefix_index.lint.captures import Body, Request, body_of, request_of
from prefix_index.lint.lines import Lines
from prefix_index.lint.parts import Where
from prefix_index.lint.text_reader import judged_text
from prefix_index.lint.types import Asked, Finding, Place, Read, Skipped

PROMPT_KEY: Final = re.compile(
    r"(?:^|_|\b)(?:prompts?|system|instructions?|template|preamble|persona|system_message)(?:$|_|\b)", re.IGNORECASE
)
_LEAST_CHARS: Final = 64
_DEEPEST: Final = 60
_SOUGHT_CHARS: Final = 12
_NEAR_CHARS: Final = 64 * 1024
"""A string of a file stands no further behind the one before: what is not strings is short."""


File = tuple[str, Lines]
"""The text of a file, and its lines."""


@dataclass(frozen=True, slots=True)
class Said:
    """A string in a file, with what names it and where it stands."""

    text: str
    key: str
    has_role: bool
    where: Where


def read_json(path: str, text: str, asked: Asked, *, is_named: bool) -> Read:
    """A JSON file, or one of JSON Lines: requests or templates. Broken lines are `skipped`."""
    rows, skipped = _rows(path, text)
    bodies: list[tuple[int, Any, Body]] = []
    for line, row in rows:
        body = body_of(row)
        if body is not None:
            bodies.append((line, row, body))
    if bodies:
        return _captured(path, bodies, skipped, asked)
    lines = Lines(text)
    findings: list[Finding] = []
    for line, row in rows:
        findings += _templates(_strings_of_json(path, text, lines, line, row), asked, is_named=is_named)
    return Read(findings, skipped)


def read_yaml(path: str, text: str, asked: Asked, *, is_named: bool) -> Read:
    """A YAML file: templates in its strings."""
    try:
        documents = list(yaml.compose_all(text, Loader=_LOADER))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return Read(skipped=[Skipped(path, f"no YAML: {_first_line(error)}")])
    lines = Lines(text)
    seen: set[int] = set()
    said = [one for node in documents for one in _strings_of_yaml(path, (text, lines), node, seen)]
    return Read(list(_templates(said, asked, is_named=is_named)))


def _captured(path: str, bodies: list[tuple[int, Any, Body]], skipped: list[Skipped], asked: Asked) -> Read:
    read = Captured(path, asked)
    seen: dict[str, str] = {}
    requests: list[Request] = []
    for number, (line, row, body) in enumerate(bodies, 1):
        request = replace(request_of(number, line, row, body, seen), path=path)
        read.add(request)
        requests.append(request)
    return Read(read.findings(), skipped, requests)


def _rows(path: str, text: str) -> tuple[list[tuple[int, Any]], list[Skipped]]:
    """The values in a file with the line that each begins in: one value, a list of requests, or one a line."""
    stripped = text.lstrip("\ufeff")
    try:
        whole = json.loads(stripped)
    except RecursionError:
        return [], [Skipped(path, "nested too deeply")]
    except ValueError as error:
        return _lines(path, stripped, error)
    if isinstance(whole, list) and any(body_of(one) is not None for one in whole):
        return [(1, one) for one in whole], []
    return [(1, whole)], []


def _lines(path: str, text: str, error: ValueError) -> tuple[list[tuple[int, Any]], list[Skipped]]:
    rows: list[tuple[int, Any]] = []
    broken: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line)))
        except (ValueError, RecursionError):
            broken.append(number)
    if not rows or len(broken) > len(rows):
        return [], [Skipped(path, f"no JSON: {_first_line(error)}")]
    first = f"line {broken[0]} is no JSON" if broken else ""
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    return rows, [Skipped(path, first + more)] if broken else []


def _templates(said: Iterator[Said] | list[Said], asked: Asked, *, is_named: bool) -> Iterator[Finding]:
    for one in said:
        is_prompt = one.has_role or PROMPT_KEY.search(one.key) is not None or is_named
        if is_prompt and len(one.text) >= _LEAST_CHARS:
            yield from judged_text(one.text, one.where, asked)


def _strings_of_json(path: str, text: str, lines: Lines, line: int, row: object) -> Iterator[Said]:
    """Each string of a value; it is found again in the text from where the one before was."""
    cursor = lines.offset_of(line)
    for string, key, has_role in _walk(row, "", 0):
        found = _written(text, string, cursor)
        cursor = cursor if found is None else found[1]
        yield Said(string, key, has_role, _in_json(path, lines, string, found or (cursor, cursor, True)))


def _written(text: str, string: str, after: int) -> tuple[int, int, bool] | None:
    """Where a string stands as JSON: start, end, and whether other scripts are escaped."""
    for is_ascii in (False, True):
        written = json.dumps(string, ensure_ascii=is_ascii)
        at = text.find(written, after, after + len(written) + _NEAR_CHARS)
        if at >= 0:
            return at, at + len(written), is_ascii
    return None


def _in_json(path: str, lines: Lines, string: str, found: tuple[int, int, bool]) -> Where:
    start, end, is_ascii = found

    def where(offset: int) -> Place:
        into = len(json.dumps(string[:offset], ensure_ascii=is_ascii)) - 1 if end > start else 0
        return Place(path, *lines.place_of(start + into), start + into)

    return where


def _walk(value: object, key: str, depth: int) -> Iterator[tuple[str, str, bool]]:
    """Strings with their key and whether a role stands beside them. Those too deep are left out."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield value, key, False
    elif isinstance(value, Mapping):
        for name, one in value.items():
            if isinstance(one, str):
                yield one, str(name), "role" in value and name in ("content", "text")
            else:
                yield from _walk(one, str(name), depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _walk(one, key, depth + 1)


def _strings_of_yaml(
    path: str, file: File, node: yaml.Node, seen: set[int], key: str = "", depth: int = 0
) -> Iterator[Said]:
    """Strings of a node, once each: what aliases repeat is in `seen`, and stands where its anchor does."""
    if depth > _DEEPEST or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.tag == "tag:yaml.org,2002:str":
            yield Said(node.value, key, has_role=False, where=_in_yaml(path, file, node))
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _strings_of_yaml(path, file, one, seen, key, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        with_role = any(name.value == "role" for name, _ in node.value)
        for name, one in node.value:
            is_content = with_role and name.value in ("content", "text") and isinstance(one, yaml.ScalarNode)
            for said in _strings_of_yaml(path, file, one, seen, str(name.value), depth + 1):
                yield replace(said, has_role=True) if is_content else said


def _in_yaml(path: str, file: File, node: yaml.ScalarNode) -> Where:
    """Of a block its own lines and columns; of all else where the text is found again, else where it begins."""
    text, lines = file
    start = node.start_mark
    is_block = node.style == "|"

    def where(offset: int) -> Place:
        if not is_block:
            sought = node.value[offset : offset + _SOUGHT_CHARS].partition("}")[0]
            found = max(text.find(sought, start.index, node.end_mark.index), start.index)
            return Place(path, *lines.place_of(found), found)
        before = node.value[:offset]
        line = start.line + 1 + before.count("\n") + 1
        begins = _line_start(text, start.index, before.count("\n") + 1)
        end = text.find("\n", begins)
        written = text[begins : end if end >= 0 else len(text)]
        inside = node.value[before.rfind("\n") + 1 :].partition("\n")[0]
        indent = max(written.find(inside), 0) if inside else 0
        column = indent + offset - (before.rfind("\n") + 1)
        return Place(path, line, column + 1, begins + column)

    return where


def _line_start(text: str, at: int, lines: int) -> int:
    for _ in range(lines):
        at = text.find("\n", at) + 1
    return at


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:120]


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
