"""The tables of the page on planning are those that the arithmetic makes."""

import pytest

from bench.planning_page import MODELS, PAGE, best_of, written_into


def test_the_page_has_the_tables_as_they_are_now() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written_into(page) == page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks"):
        written_into("# Planning\n")


def test_eight_bits_take_no_more_gpus_than_sixteen() -> None:
    for model in MODELS:
        wide, narrow = best_of(model, "h200", 16), best_of(model, "h200", 8)
        if wide is not None and wide.served is not None:
            assert narrow is not None
            assert narrow.machine.gpus <= wide.machine.gpus
