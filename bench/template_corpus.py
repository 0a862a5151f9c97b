"""Real prompt templates, filled for several calls: what changes changes with every call, what is configured stays.

    template --> file of a gateway that keeps it, fixed text first      called with its variables
        `-----> as its author wrote it, filled here                     sent as a prompt

The templates are those of the repository's corpora: agents' own, in English and Chinese. No slot is marked: how often
one changes is judged by its name, as it is for everybody who marks none.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from bench.result import ROOT
from prefix_index.layout import Renderer, Source, Syntax, Volatility, judged_name, read_template

CORPORA: Final = ROOT / "tests" / "data" / "corpora"
_SYNTAXES: Final = {"jinja": Syntax.JINJA, "fstring": Syntax.FORMAT, "literal": Syntax.LITERAL}
_BEGIN: Final = datetime(2026, 11, 30, 12, 5, 11)  # noqa: DTZ001 - the text of a template's clock, in nobody's zone
_SETTINGS: Final[Mapping[str, object]] = {"report_style": "academic", "resources": [], "locale": "en-US"}
_SUBJECTS: Final = ("caravans in the desert", "wells and their keepers", "salt roads", "the price of indigo")


@dataclass(frozen=True, slots=True)
class Filled:
    """One prompt as written; the variables that it is filled with; and those of their values that are of this call
    alone, each as often as it stands in the text."""

    text: str
    values: tuple[str, ...] = ()
    variables: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CorpusTemplate:
    """A template. `changing` are its slots that differ in each call; `name` is what a gateway keeps it under."""

    id: str
    name: str
    syntax: Syntax
    source: str
    changing: frozenset[str]
    renderer: Renderer

    def filled(self, call: int) -> Filled:
        """The prompt of a call, by its number."""
        variables = {name: self._value(name, call) for name in self.renderer.template.names}
        text = str(self.renderer.messages(variables)[0]["content"])
        own = [str(variables[name]) for name in sorted(self.changing)]
        return Filled(text, tuple(value for value in own for _ in range(text.count(value))), variables)

    def file(self, user: str) -> dict[str, object]:
        """As a gateway keeps it, to be put in order; `user` is what a user says behind it."""
        said = user.replace("{", "{{").replace("}", "}}") if self.syntax is Syntax.FORMAT else user
        messages = [{"role": "system", "content": self.source}, {"role": "user", "content": said}]
        return {
            "name": self.name,
            "version": "1",
            "syntax": self.syntax.value,
            "reorder": "consented",
            "messages": messages,
        }

    def _value(self, name: str, call: int) -> object:
        if name in _SETTINGS:
            return _SETTINGS[name]
        if name not in self.changing:
            return "5"
        if judged_name(name)[0] is Volatility.PER_REQUEST and "time" in name.lower():
            return f"{_BEGIN + timedelta(seconds=37 * call):%Y-%m-%d %H:%M:%S}"
        if name in ("date", "today"):
            return f"{_BEGIN + timedelta(days=call):%A, %d %B %Y}"
        subject = _SUBJECTS[call % len(_SUBJECTS)]
        return f"({call}, {name}) What do we know of {subject}, and who says so? Name {3 + call} sources."


def load_templates() -> list[CorpusTemplate]:
    """All templates of the corpora, in their order. A text without slots is a template whose calls are all alike."""
    with gzip.open(CORPORA / "prompt_templates.jsonl.gz", "rt", encoding="utf-8") as file:
        return [_template(f"t{number:02}", json.loads(row)) for number, row in enumerate(file)]


def load_tools(count: int) -> list[dict[str, Any]]:
    """The shortest tools of the corpora, each of another name, in the order of their names."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("tools_bfcl", "tools_glaive_en", "tools_glaive_zh", "agent_tau_airline"):
        with gzip.open(CORPORA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            for row in file:
                for tool in json.loads(row)["request"].get("tools") or ():
                    found.setdefault(tool["function"]["name"], tool)
    shortest = sorted(found.items(), key=lambda item: (len(json.dumps(item[1])), item[0]))[:count]
    return [tool for _, tool in sorted(shortest, key=lambda item: item[0])]


def _template(name: str, row: Mapping[str, Any]) -> CorpusTemplate:
    syntax, source = _SYNTAXES[row["syntax"]], row["template"]
    read = read_template([Source(source, "system")], syntax)
    kinds = {slot["name"]: slot["kind"] for slot in row["volatile"]}
    changing = {name for name in read.names if kinds.get(name) in ("time", "user") or _is_content(name, kinds)}
    return CorpusTemplate(row["id"], name, syntax, source, frozenset(changing), Renderer(read))


def _is_content(name: str, kinds: Mapping[str, str]) -> bool:
    """A task or an issue, whatever the corpus calls it."""
    return kinds.get(name) == "config" and judged_name(name)[0] is Volatility.PER_REQUEST
