"""Columns become the figures that tables show."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.sim.records import Figures, Records, quantile


def served(records: Records, at_s: float, *, endpoint: int = 0, prompt: int = 100, cached: int = 0) -> int:
    """Sent, computed after 1 s, and answered with ten tokens after 3 s."""
    row = records.begin(at_s, prompt, 10)
    records.sent(row, endpoint)
    records.first_token(row, at_s + 1.0, cached, None)
    records.ended(row, at_s + 3.0)
    return row


def test_figures_are_sums_and_ranks_of_the_rows() -> None:
    records = Records(2)
    served(records, 10.0, cached=40)
    row = records.begin(12.0, 300, 20)
    records.sent(row, 1)
    records.first_token(row, 16.0, 200, 220)
    records.ended(row, 20.0)
    assert records.figures() == Figures(
        requests=2,
        answered=2,
        failed=0,
        hit_share=240 / 400,
        ttft_mean_s=2.5,
        ttft_p50_s=1.0,
        ttft_p90_s=4.0,
        ttft_p99_s=4.0,
        output_tokens_per_s=30 / 10.0,
        imbalance=100 / 80,
        uncached_tokens=160,
        expected_minus_reported=20 / 300,
        expected_off=20 / 300,
        span_s=10.0,
    )


def test_a_run_of_nothing_has_no_figures() -> None:
    figures = Records(3).figures()
    assert (figures.requests, figures.answered, figures.uncached_tokens) == (0, 0, 0)
    unknown = (figures.hit_share, figures.ttft_p99_s, figures.imbalance, figures.output_tokens_per_s, figures.span_s)
    assert all(map(math.isnan, unknown))


def test_what_was_never_computed_is_in_no_share() -> None:
    records = Records(1)
    served(records, 0.0, cached=50)
    records.sent(records.begin(1.0, 1_000_000, 5), 0)
    figures = records.figures()
    assert (figures.requests, figures.answered, figures.hit_share, figures.ttft_p99_s) == (2, 1, 0.5, 1.0)


def test_a_warm_up_is_left_out_of_shares_and_times_but_not_of_the_work() -> None:
    records = Records(2)
    served(records, 5.0)
    served(records, 20.0, endpoint=1, cached=60)
    figures = records.figures(skip_s=10.0)
    assert (figures.requests, figures.hit_share, figures.span_s) == (1, 0.6, 8.0)
    assert figures.uncached_tokens == 140


def test_expectations_that_err_to_both_sides_cancel_in_the_sum_and_not_in_the_size() -> None:
    records = Records(1)
    for expected in (30, 70):
        records.sent(row := records.begin(0.0, 100, 1), 0)
        records.first_token(row, 1.0, 50, expected)
    figures = records.figures()
    assert (figures.expected_minus_reported, figures.expected_off) == (0.0, 0.2)


def test_an_endpoint_that_joined_has_a_column_of_its_own() -> None:
    records = Records(1)
    served(records, 0.0, endpoint=2)
    assert records.uncached_of == [0, 0, 100]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1.0))
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9
    assert sum(value < found for value in ordered) < share * len(ordered)
