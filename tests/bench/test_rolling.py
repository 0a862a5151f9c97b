"""What the benchmark of restarts would find."""

from collections import Counter

from bench.overhead_load import Measured
from bench.rolling import Part


def faults(*, requests: int = 100, errors: dict[str, int] | None = None, twice: int = 0, **states: int) -> list[str]:
    measured = Measured(requests, duration_us=10**6, p50_us=1, p99_us=2, errors=errors or {})
    part = Part("reloads", 3, 8, measured, Counter(states), twice)
    return [goal.name for goal in part.goals() if not goal.met]


def test_answers_that_are_there_once_are_no_fault_nor_are_those_under_way_at_the_end() -> None:
    assert faults(complete=100) == []
    assert faults(complete=105, partial=3) == []


def test_each_fault_is_found() -> None:
    assert faults(complete=100, errors={"read": 1}) == ["reloads: requests failed"]
    assert faults(complete=99) == ["reloads: answers without a row"]
    assert faults(complete=109) == ["reloads: rows without an answer"]
    assert faults(complete=100, twice=1) == ["reloads: answers with two rows"]
    assert faults(complete=100, open=1) == faults(complete=100, interrupted=1)
    assert faults(complete=100, open=1) == ["reloads: requests left open or interrupted"]
