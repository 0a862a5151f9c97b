"""Whether the engine behind an endpoint is another process: by what it said before and what it says now."""

import pytest

from backends.health import restarted
from backends.types import LoadSample

OLD = LoadSample(0.0, prefix_hits=5, prefix_queries=10, started_at_s=100.0)


@pytest.mark.parametrize(
    ("before", "after", "was_down", "expected"),
    [
        (OLD, LoadSample(1.0, started_at_s=100.02), True, False),
        (OLD, LoadSample(1.0, started_at_s=100.4), False, True),
        (OLD, LoadSample(1.0, started_at_s=50.0), False, True),
        (OLD, LoadSample(1.0, prefix_hits=5, prefix_queries=11), True, False),
        (OLD, LoadSample(1.0, prefix_hits=4, prefix_queries=11), False, True),
        (OLD, LoadSample(1.0), False, False),
        (OLD, LoadSample(1.0), True, True),
        (LoadSample(0.0, prefix_queries=0), LoadSample(1.0, prefix_queries=0), True, True),
        (None, None, True, True),
        (None, OLD, False, False),
        (OLD, None, False, False),
    ],
)
def test_restarts_are_told_by_start_time_then_counters_then_absence(
    before: LoadSample | None, after: LoadSample | None, was_down: bool, expected: bool
) -> None:
    assert restarted(before, after, was_down) is expected
