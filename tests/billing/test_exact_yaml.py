"""YAML that is read exactly: what every file of prices, plans, costs and sellers is read with."""

import pytest

from billing.errors import YamlInvalid
from billing.exact_yaml import read_exact


@pytest.mark.parametrize("text", ["0.1", "1e400", "00042", "2026-11-01", "yes", "0x1F", "1:30", "NaN", ".inf"])
def test_a_scalar_is_the_text_that_was_written(text: str) -> None:
    assert read_exact(f"a: {text}\nb: [{text}]") == {"a": text, "b": [text]}


@pytest.mark.parametrize("text", ["", "~", "null"])
def test_what_is_left_empty_is_nothing(text: str) -> None:
    assert read_exact(f"a: {text}") == {"a": None}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: 2\na: 3", "'a' stands twice"),
        ("outer: {1: x, 1: y}", "'1' stands twice"),
        ("a: [", "expected"),
        ("{[1]: 2}", "unhashable"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("[" * 20_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, why: str) -> None:
    with pytest.raises(YamlInvalid, match=why):
        read_exact(text)
