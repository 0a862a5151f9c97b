"""The templates of the corpora, and templates made up by hypothesis."""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from prefix_index.layout import PromptTemplate, Syntax, read_template

CORPUS = Path(__file__).parents[2] / "data" / "corpora" / "prompt_templates.jsonl.gz"
_SYNTAX = {"jinja": Syntax.JINJA, "fstring": Syntax.FORMAT, "literal": Syntax.LITERAL}


@dataclass(frozen=True, slots=True)
class Row:
    """One template; `first_slot` is the kind of its first slot, as the corpus has it."""

    id: str
    syntax: Syntax
    text: str
    first_slot: str | None

    @property
    def template(self) -> PromptTemplate:
        """As the product reads it."""
        return read_template(self.text, self.syntax)


@cache
def corpus() -> tuple[Row, ...]:
    """All rows."""
    lines = gzip.decompress(CORPUS.read_bytes()).splitlines()
    return tuple(
        Row(one["id"], _SYNTAX[one["syntax"]], one["template"], next((slot["kind"] for slot in one["volatile"]), None))
        for one in map(json.loads, lines)
    )


_LINES = (
    "You are a helpful agent.",
    "Be brief",
    "# Rules",
    "- Cite what you read.",
    "- Answer in {{ locale }}.",
    "  - nested {{ question }}",
    "1. First do this.",
    "2. Then that with {{ user_name }}.",
    "Time: {{ now }}",
    "Be kind. Today is {{ today }}.",
    "You help {{ user_name }}",
    "and nobody else.",
    "<docs>",
    "{{ documents }}",
    "</docs>",
    "```",
    "---",
    "Here it comes:",
    "{% if vip %}Very {{ user_name }}.{% endif %}",
    "{%- if vip -%}x{%- endif %}",
    "{# a remark #}",
    "{% raw %}{{ not_a_slot }}{% endraw %}",
    "{% set x = 1 %}",
    "See above.",
    "",
    "",
)

jinja_texts = st.lists(st.sampled_from(_LINES), max_size=24).map("\n".join)
"""Sources whose lines are put together in any order, structures cut in any place among them."""
