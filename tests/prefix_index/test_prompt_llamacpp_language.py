"""What llama.cpp's dialect of Jinja writes, beyond what is recorded from it (test_prompt_recorded.py)."""

import pytest

from prefix_index.errors import TemplateFailed
from prefix_index.prompt import ChatTemplate
from prefix_index.prompt.llamacpp_language import LlamaCppEnvironment

PRINTS = [
    ("1.5", "1.5"),
    ("true", "True"),
    ("none", ""),
    ("missing", ""),
    ("{'a': 1.0}", ""),
    ("[1.0, ['a', none], (2,)]", "1.0a2"),
    ("[1.0, 2.5] | map('string')", "12.5"),
    ("2 ** 63", "-9223372036854775808"),
    ("'<' ~ none ~ missing ~ 1.0 ~ true ~ 'x>'", "<1.0Truex>"),
    ("'' ~ [1.0, 'it\\'s', none, true, {'a': 'b'}]", "[1.0, \"it's\", None, True, {'a': 'b'}]"),
    ("5.0 | string", "5"),
    ("missing | string", ""),
    ("true | string", "True"),
    ("'a' | string", "a"),
    ("(1.0, missing, {1: true}) | tojson", '[1, null, {"1": true}]'),
    ("[[], {}] | tojson(indent=2)", "[\n  [],\n  {}\n]"),
    ("{'a': [1.0]} | tojson(indent='\\t')", '{"a": [1]}'),
    ("{'a': [1, 2]} | tojson(separators=[','])", '{"a": [1,2]}'),
    ("'é\\x7f' | tojson(ensure_ascii=true)", '"\\u00e9\x7f"'),
]


def rendered(source: str) -> str:
    return ChatTemplate(source, language=LlamaCppEnvironment).render([], {})


@pytest.mark.parametrize(("expression", "expected"), PRINTS)
def test_values_are_written_as_llama_cpp_writes_them(expression: str, expected: str) -> None:
    assert rendered("{{ " + expression + " }}") == expected


@pytest.mark.parametrize(
    "expression",
    ["{'a': 1} | tojson(sort_keys=true)", "range | tojson", "'' ~ range", "(10 ** 60) ** 60 | tojson"],
)
def test_what_llama_cpp_cannot_write_fails(expression: str) -> None:
    with pytest.raises(TemplateFailed):
        rendered("{{ " + expression + " }}")


def test_text_between_and_in_blocks_stays_as_it_is() -> None:
    source = (
        "a {% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(1.0) }}{% for n in [1.0, 2] %}{{ n }},{% endfor %} {{ 'b' }}"
    )
    assert rendered(source) == "a <1.0>1.0,2, b"
