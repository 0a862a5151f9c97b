"""Figures of one load: against sums over small steps of time, and by hand where a reader can follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.measuring.levels import hit_share, keeps, level_of, merged
from gateway.measuring.types import Limits, Seen, Window

TENTHS = 0.1


@st.composite
def seen_in(draw: st.DrawFn) -> Seen:
    """One that begins, has its first token and ends at tenths of a second."""
    asked = draw(st.integers(0, 60))
    first, decode = draw(st.integers(0, 20)), draw(st.integers(0, 30))
    is_whole = draw(st.booleans())
    ended = draw(st.sampled_from((None, (asked + first + decode) * TENTHS)))
    return Seen(
        asked * TENTHS,
        first * TENTHS,
        decode * TENTHS,
        ended,
        is_whole and ended is not None,
        draw(st.sampled_from((None, 100))),
        draw(st.sampled_from((None, 0, 64))),
        draw(st.sampled_from((None, 1, 10))),
        draw(st.sampled_from((None, 0.05))),
    )


def at_work(seen: list[Seen], at_s: float, to_s: float) -> int:
    """Requests under way at an instant."""
    return sum(one.asked_s <= at_s < (max(to_s, one.asked_s) if one.ended_s is None else one.ended_s) for one in seen)


@given(st.lists(seen_in(), max_size=12), st.integers(1, 4))
def test_in_flight_and_busy_are_sums_over_small_steps(seen: list[Seen], engines: int) -> None:
    window = Window(1.0, 5.0, seen)
    level = level_of(window, Limits(), engines=engines)
    middles = [1.0 + (step + 0.5) * TENTHS for step in range(40)]
    counts = [at_work(seen, at_s, window.to_s) for at_s in middles]
    assert level.in_flight == pytest.approx(sum(counts) / len(counts))
    assert level.busy_share == pytest.approx(sum(min(count, engines) for count in counts) / len(counts) / engines)


@given(st.lists(seen_in(), max_size=12))
def test_tokens_of_all_windows_are_all_tokens(seen: list[Seen]) -> None:
    parts = [level_of(Window(at, at + 1.0, seen), Limits()) for at in range(12)]
    told = sum(part.output_tokens_per_s or 0.0 for part in parts)
    assert told == pytest.approx(sum(one.output_tokens or 0 for one in seen if one.is_whole))
    assert sum(part.requests_per_s for part in parts) == pytest.approx(sum(one.is_whole for one in seen))


@given(st.lists(seen_in(), min_size=1, max_size=12))
def test_windows_put_together_are_one_long_window(seen: list[Seen]) -> None:
    limits = Limits(ttft_s=1.0)
    whole = level_of(Window(0.0, 12.0, seen), limits)
    parts = [level_of(Window(at, at + 1.0, seen), limits) for at in range(12)]
    found = merged(parts, seen, limits)
    assert found.in_flight == pytest.approx(whole.in_flight, abs=1.1)  # what was cut off ends with its window
    for name in ("requests", "failed", "cut", "ttft", "itl", "within_limits", "hit_share"):
        assert getattr(found, name) == getattr(whole, name)
    assert found.requests_per_s == pytest.approx(whole.requests_per_s)


def test_what_nobody_told_is_none() -> None:
    level = level_of(Window(0.0, 1.0, [Seen(0.0, 0.1, 0.0, 0.2, is_whole=True)]), Limits())
    assert level.output_tokens_per_s is None
    assert level.prefill_share is None
    assert level.decode_share is None
    assert level.hit_share is None
    assert level.itl is None
    assert level.within_limits is None


def test_goodput_counts_what_keeps_both_limits_and_a_failure_keeps_none() -> None:
    limits = Limits(ttft_s=1.0, itl_s=0.1)
    good = Seen(0.0, 0.5, 0.9, 1.4, is_whole=True, output_tokens=10)
    late = Seen(0.0, 1.5, 0.9, 2.4, is_whole=True, output_tokens=10)
    slow = Seen(0.0, 0.5, 1.8, 2.3, is_whole=True, output_tokens=10)
    failed = Seen(0.0, None, None, 0.1, is_whole=False)
    assert [keeps(one, limits) for one in (good, late, slow, failed)] == [True, False, False, False]
    level = level_of(Window(0.0, 4.0, [good, late, slow, failed]), limits, gpus=2)
    assert level.within_limits == 0.25
    assert level.goodput_per_s == pytest.approx(1 / 4), "one of them in four seconds"
    assert level.output_tokens_per_s_per_gpu == pytest.approx(30 / 4 / 2)
    assert (level.failed, level.cut) == (1, 0)


def test_engines_that_have_names_are_busy_each_by_itself() -> None:
    a = Seen(0.0, 0.1, 0.9, 1.0, is_whole=True, endpoint="a")
    again = Seen(0.0, 0.1, 0.9, 1.0, is_whole=True, endpoint="a")
    b = Seen(1.0, 0.1, 0.4, 1.5, is_whole=True, endpoint="b")
    assert level_of(Window(0.0, 2.0, [a, again, b]), Limits()).busy_share == pytest.approx((1.0 + 0.5) / 4)


def test_prefills_of_which_the_length_is_not_known_take_as_long_as_the_others() -> None:
    known = Seen(0.0, 0.5, 0.5, 1.0, is_whole=True, prompt_tokens=10, prefill_s=0.2)
    unknown = Seen(1.0, 0.5, 0.5, 2.0, is_whole=True)
    level = level_of(Window(0.0, 2.0, [known, unknown]), Limits())
    assert level.prefill_share == pytest.approx(0.4 / 2)
    assert level.decode_share == pytest.approx(0.8)


def test_of_an_answer_in_one_piece_nobody_knows_whether_it_kept_its_limits() -> None:
    limits = Limits(ttft_s=1.0, itl_s=0.1)
    good = Seen(0.0, 0.5, 0.9, 1.4, is_whole=True, output_tokens=10)
    late = Seen(0.0, 1.5, 0.9, 2.4, is_whole=True, output_tokens=10)
    in_one_piece = Seen(0.0, None, None, 0.4, is_whole=True, output_tokens=10)
    assert keeps(in_one_piece, limits) is None
    level = level_of(Window(0.0, 4.0, [good, late, in_one_piece]), limits)
    assert level.within_limits == 0.5
    assert level.goodput_per_s == pytest.approx(0.5 * 3 / 4)
    failed = Seen(0.0, None, None, 0.1, is_whole=False)
    half_known = level_of(Window(0.0, 4.0, [good, in_one_piece, failed, failed]), limits)
    assert half_known.within_limits == 0.5, "as many of those that nobody knows as of the others"
    unknown = level_of(Window(0.0, 4.0, [in_one_piece, failed]), limits)
    assert (unknown.within_limits, unknown.goodput_per_s) == (None, None)


def test_where_all_fail_the_goodput_is_none_a_second_and_not_unknown() -> None:
    failed = Seen(0.0, None, None, 0.1, is_whole=False)
    level = level_of(Window(0.0, 4.0, [failed]), Limits(ttft_s=1.0))
    assert (level.within_limits, level.goodput_per_s) == (0.0, 0.0)


def test_the_hit_share_is_of_requests_that_say_what_was_cached() -> None:
    told = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, prompt_tokens=100, cached_tokens=25)
    untold = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, prompt_tokens=900)
    without_length = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, cached_tokens=50)
    assert hit_share([told, untold, without_length]) == 0.25
    assert hit_share([untold]) is None
