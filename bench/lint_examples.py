"""Labelled examples for lint: real templates of agents, and what was written for each rule."""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from bench.result import ROOT
from prefix_index.lint import RULES, Asked, Finding, read_file

DATA: Final = ROOT / "tests" / "data"
PARAGRAPH: Final = (
    "You answer questions of people who look for a book in a large library, and you are kind, brief and exact in all "
    "that you say; where you do not know a thing you say so, and you name the shelf, the row and the title of each "
    "book that you speak of, in the language of the one who asks"
)
"""What § stands for: some 60 tokens."""


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled file; `finds` are rule and place."""

    name: str
    path: str
    text: str = field(repr=False)
    finds: frozenset[tuple[str, str]]


def labelled(name: str) -> list[Example]:
    """The examples of `sources` or `captures`."""
    rows = yaml.safe_load((DATA / "lint" / f"{name}.yaml").read_text(encoding="utf-8"))
    return [_source(row) if "source" in row else _capture(row) for row in rows]


def templates() -> list[Example]:
    """The corpus of templates with its labels."""
    labels = yaml.safe_load((DATA / "lint" / "templates.yaml").read_text(encoding="utf-8"))
    found = []
    for line in gzip.decompress((DATA / "corpora" / "prompt_templates.jsonl.gz").read_bytes()).splitlines():
        row = json.loads(line)
        finds = frozenset(_pair(one, ":") for one in labels.get(row["id"], ()))
        found.append(Example(row["id"], f"{row['id']}.jinja", row["template"], finds))
    return found


def found_in(example: Example) -> list[Finding]:
    """What lint says of an example."""
    return read_file(example.path, example.text, Asked(minimum_tokens=0), is_named=True).findings


def places(example: Example, findings: Iterable[Finding]) -> frozenset[tuple[str, str]]:
    """Findings as labels have them."""
    return frozenset((one.rule.id, _place(example, one)) for one in findings)


def _place(example: Example, one: Finding) -> str:
    if example.path.endswith(".jsonl"):
        return ""
    if _is_template(example):
        return one.subject or "-"
    return str(one.place.line)


def _is_template(example: Example) -> bool:
    return example.path == f"{example.name}.jinja"


def _source(row: Mapping[str, Any]) -> Example:
    finds = frozenset(_pair(one, "@") for one in row.get("finds", ()))
    return Example(row["name"], row["file"], row["source"].replace("§", PARAGRAPH), finds)


def _capture(row: Mapping[str, Any]) -> Example:
    text = "\n".join(json.dumps(one, ensure_ascii=False) for one in row["requests"]).replace("§", PARAGRAPH)
    return Example(row["name"], "captured.jsonl", text, frozenset((one, "") for one in row.get("finds", ())))


def _pair(label: str, mark: str) -> tuple[str, str]:
    rule, _, place = label.partition(mark)
    if rule not in RULES:
        raise ValueError(f"there is no rule {rule!r}")
    return rule, place
