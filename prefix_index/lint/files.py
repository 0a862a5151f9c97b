"""Which reader a file goes to, and what in it may be left as it is.

.py  python_reader    .jinja .j2 ... text    .json .jsonl .yaml  structured    .md .txt  text, where its path says so
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2s
from pathlib import PurePosixPath
from typing import Final

from prefix_index.lint.python_reader import read_python
from prefix_index.lint.structured import read_json, read_yaml
from prefix_index.lint.text_reader import read_text
from prefix_index.lint.types import Asked, Finding, Read

PYTHON: Final = frozenset({".py", ".pyi"})
TEMPLATES: Final = frozenset({".jinja", ".jinja2", ".j2", ".prompt", ".tmpl", ".mustache", ".hbs", ".liquid"})
TEXTS: Final = frozenset({".md", ".markdown", ".txt", ".mdx"})
JSONS: Final = frozenset({".json", ".jsonl", ".ndjson"})
YAMLS: Final = frozenset({".yaml", ".yml"})
SUFFIXES: Final = PYTHON | TEMPLATES | TEXTS | JSONS | YAMLS

_OF_MACHINES: Final = frozenset(
    {
        *(".html", ".htm", ".xml", ".svg", ".css", ".js", ".ts", ".sql", ".tex", ".conf", ".cfg", ".ini", ".toml"),
        *(".yaml", ".yml", ".json", ".service", ".sh", ".py", ".rst", ".env", ".properties", ".tf", ".csv"),
    }
)
"""`page.html.jinja` becomes a page, and no prompt."""
_OF_PROMPTS: Final = re.compile(r"prompt|system|instruction|agent|persona", re.IGNORECASE)
_NO_PROMPTS: Final = re.compile(
    r"readme|changelog|license|licence|contributing|security|code_of_conduct", re.IGNORECASE
)
_IGNORE: Final = re.compile(r"prefixgate:\s*ignore(?P<file>-file)?(?:\[(?P<rules>[\w\s,*-]{1,400})\])?")


def is_candidate(path: str) -> bool:
    """Whether a file that a folder holds is looked at: by its suffix, and of prose by what its path says."""
    pure = PurePosixPath(path)
    if pure.suffix.lower() in TEMPLATES and PurePosixPath(pure.stem).suffix.lower() in _OF_MACHINES:
        return False
    if pure.suffix.lower() in TEXTS:
        return _OF_PROMPTS.search("/".join(pure.parts[-3:])) is not None and _NO_PROMPTS.search(pure.name) is None
    return pure.suffix.lower() in SUFFIXES


def read_file(path: str, text: str, asked: Asked, *, is_named: bool) -> Read:
    """What breaks prefixes in a file; `is_named`: it was asked for by itself, and not found in a folder.

    Faults that a comment in it lets pass are left out. Nothing is raised.
    """
    suffix = PurePosixPath(path.removesuffix(".gz")).suffix.lower()
    if suffix in PYTHON:
        read = read_python(path, text, asked)
    elif suffix in JSONS:
        read = read_json(path, text, asked, is_named=is_named)
    elif suffix in YAMLS:
        read = read_yaml(path, text, asked, is_named=is_named)
    else:
        read = read_text(path, text, asked)
    return replace(read, findings=with_fingerprints(allowed(read.findings, text)))


def allowed(findings: Iterable[Finding], text: str) -> list[Finding]:
    """Without those that a comment `prefixgate: ignore[rule]` in their line, or the line above, lets pass."""
    if "prefixgate:" not in text:
        return list(findings)
    by_line: dict[int, set[str]] = {}
    of_file: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        match = _IGNORE.search(line)
        if match is None:
            continue
        rules = {one.strip() for one in (match["rules"] or "*").split(",")}
        if match["file"]:
            of_file |= rules
        else:
            by_line.setdefault(number, set()).update(rules)
            by_line.setdefault(number + 1, set()).update(rules)
    return [
        one
        for one in findings
        if not {one.rule.id, "*"}
        & (of_file | (by_line.get(one.place.line, set()) if one.place.request is None else set()))
    ]


def with_fingerprints(findings: Iterable[Finding]) -> list[Finding]:
    """Each with a name that stays when lines move: its rule, file and subject, and which of several it is."""
    seen: dict[str, int] = {}
    named = []
    for one in findings:
        subject = one.subject if one.place.request is None else one.place.part
        base = f"{one.rule.id}\0{one.place.path}\0{subject}"
        count = seen[base] = seen.get(base, 0) + 1
        key = blake2s(f"{base}\0{count}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        named.append(replace(one, fingerprint=key))
    return named
