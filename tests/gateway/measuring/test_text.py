"""A study as tables of a terminal."""

from gateway.measuring.study import Frame, study_of
from gateway.measuring.text import tables_of
from gateway.measuring.types import Limits
from tests.gateway.measuring.test_verdict import USUAL
from tests.gateway.measuring.virtual import closed_loop, window_of


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    """Nobody said how many GPUs there are, and a closed loop is never late."""
    windows = [window_of(*closed_loop(USUAL, n, (500, 50)), n) for n in (1, 8)]
    _, rates, times = tables_of(study_of("s", windows, Frame()))
    _, with_gpus, _ = tables_of(study_of("s", windows, Frame(Limits(), gpus=2)))
    headings = [[str(column.header) for column in table.columns] for table in (rates, with_gpus, times)]
    assert "per GPU" not in headings[0]
    assert "per GPU" in headings[1]
    assert "late p99" not in headings[2]
    assert headings[2][:2] == ["load", "TTFT p50"]
    assert all(len(list(column.cells)) == 2 for column in (*rates.columns, *times.columns))
