"""An hour split among calls: exact sums, against an oracle that walks the hour moment by moment."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.economics.rates import KvReading
from billing.economics.split import shared, split
from billing.economics.types import Call, Measured, Who

WHO = Who("acme", "llama")
S = 10**6
KV = KvReading()


def call(start_s: float, end_s: float, prefill_s: float | None = None, decode_s: float = 0, **other: int) -> Call:
    measured = None
    if prefill_s is not None:
        tokens = (other.get("fresh", 100), other.get("cached", 0), other.get("output", 10))
        measured = Measured(int(prefill_s * S), int(decode_s * S), *tokens)
    return Call(WHO, int(start_s * S), int(end_s * S), measured, lost=bool(other.get("lost")))


@given(st.integers(0, 10**20), st.lists(st.integers(0, 10**15), min_size=1))
def test_shares_add_up_and_are_off_by_less_than_one(amount: int, weights: list[int]) -> None:
    if not sum(weights):
        with pytest.raises(ValueError, match="one of them more"):
            shared(amount, weights)
        return
    found = shared(amount, weights)
    assert sum(found) == amount
    for share, weight in zip(found, weights, strict=True):
        assert abs(share - Fraction(amount * weight, sum(weights))) < 1


def test_an_hour_without_calls_is_idle() -> None:
    hour = split(0, 3600 * S, 5 * 10**12, [], KV)
    assert (hour.idle_pico, hour.idle_us, hour.busy_us) == (5 * 10**12, 3600 * S, 0)


def test_a_lone_call_bears_its_time_in_the_proportion_of_prefill_and_decode() -> None:
    hour = split(0, 10 * S, 1000, [call(2, 6, prefill_s=1, decode_s=3, output=10)], KV)
    (spent,) = hour.spent
    assert hour.idle_pico == 600
    assert spent.prefill_pico == 100
    assert spent.tokens_pico == 400


def test_two_answers_decoded_together_cost_half_as_much_each_as_one_alone() -> None:
    alone = split(0, 10 * S, 10**12, [call(0, 10, prefill_s=0, decode_s=10)], KV)
    together = split(0, 10 * S, 10**12, [call(0, 10, prefill_s=0, decode_s=10) for _ in "ab"], KV)
    assert [one.tokens_pico for one in together.spent] == [alone.spent[0].tokens_pico // 2] * 2


def test_a_cached_token_costs_a_little_and_no_prefill() -> None:
    asked = call(0, 10, prefill_s=1, decode_s=9, fresh=100, cached=800, output=200)
    (spent,) = split(0, 10 * S, 10**12, [asked], KV).spent
    assert spent.prefill_pico == 10**11
    assert spent.cached_pico == 9 * 10**11 // 10 * 8 // 10
    assert 0 < spent.cached_pico / 800 < spent.fresh_pico / 100 / 10


def test_what_reading_kv_takes_follows_from_the_batch_where_sizes_are_known() -> None:
    kv = KvReading(weight_bytes=1000, kv_bytes_per_token=1)
    asked = call(0, 10, prefill_s=0, decode_s=10, fresh=0, cached=900, output=200)
    (alone,) = split(0, 10 * S, 10**12, [asked], kv).spent
    together = split(0, 10 * S, 10**12, [asked] * 9, kv).spent
    assert alone.cached_pico == 10**12 // 2 * 9 // 10
    assert sum(one.cached_pico for one in together) == pytest.approx(10**12 * 0.9 * 0.9, rel=1e-5)


def test_a_call_whose_seconds_are_unknown_bears_its_share_of_the_moments_and_no_token_does() -> None:
    hour = split(0, 10 * S, 1000, [call(0, 10), call(0, 5, prefill_s=1, decode_s=4)], KV)
    unknown, known = hour.spent
    assert (unknown.unmeasured_pico, unknown.tokens_pico) == (750, 0)
    assert (known.unmeasured_pico, known.tokens_pico) == (0, 250)


def test_a_call_that_nobody_was_answered_by_costs_too() -> None:
    (spent,) = split(0, 10 * S, 1000, [call(0, 10, lost=1)], KV).spent
    assert (spent.lost_pico, spent.unmeasured_pico) == (1000, 0)


def test_a_prefill_that_spans_two_hours_costs_in_both_what_it_cost_in_one() -> None:
    asked = call(3590, 3610, prefill_s=16, decode_s=4)
    first, second = (split(at * 3600 * S, (at + 1) * 3600 * S, 3600, [asked], KV).spent[0] for at in (0, 1))
    assert (first.prefill_pico, second.prefill_pico) == (10, 6)
    assert first.tokens_pico == 10
    assert second.tokens_pico == 10


def test_measured_calls_that_only_wait_share_as_the_unknown_do() -> None:
    asked = [call(0, 7200, prefill_s=1, decode_s=1) for _ in "ab"]
    hour = split(0, 3600 * S, 1000, asked, KV)
    assert [one.unmeasured_pico for one in hour.spent] == [500, 500]


def calls(moments: int) -> st.SearchStrategy[list[Call]]:
    times = st.tuples(st.integers(-3, moments + 3), st.integers(0, 8))
    known = st.none() | st.builds(
        Measured, st.integers(0, 9), st.integers(0, 9), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)
    )
    one = st.builds(
        lambda span, measured, lost: Call(WHO, span[0], span[0] + span[1], measured, lost),
        times,
        known,
        st.booleans(),
    )
    touching = one.filter(lambda call: call.end_us >= 0 and call.start_us < moments)
    return st.lists(touching, max_size=6)


MOMENTS = 12


@given(calls(MOMENTS), st.integers(0, 10**15))
def test_busy_and_idle_are_the_cost_to_the_last_digit_and_nothing_is_negative(given_: list[Call], cost: int) -> None:
    hour = split(0, MOMENTS, cost, given_, KV)
    assert hour.idle_pico + sum(one.busy_pico for one in hour.spent) == hour.cost_pico == cost
    assert hour.busy_us + hour.idle_us == MOMENTS
    for call_, one in zip(given_, hour.spent, strict=True):
        assert min(one.prefill_pico, one.context_pico, one.cached_pico, one.output_pico) >= 0
        assert min(one.unmeasured_pico, one.lost_pico, hour.idle_pico) >= 0
        assert not (call_.lost and one.tokens_pico)
        assert call_.lost or not one.lost_pico


@given(calls(MOMENTS))
def test_each_call_gets_what_walking_the_hour_moment_by_moment_gives_it(given_: list[Call]) -> None:
    cost = MOMENTS * 10**15
    hour = split(0, MOMENTS, cost, given_, KV)
    expected = walked(given_)
    assert hour.busy_us == sum(1 for at in range(MOMENTS) if any(c.start_us <= at < c.end_us for c in given_))
    for one, (tokens, others) in zip(hour.spent, expected, strict=True):
        assert one.tokens_pico == pytest.approx(float(tokens * 10**15), abs=10**11)
        assert one.unmeasured_pico + one.lost_pico == pytest.approx(float(others * 10**15), abs=10**11)


def walked(given_: list[Call]) -> list[tuple[Fraction, Fraction]]:
    """The oracle: moments of busy time of each call, as a measured one, and as another."""
    weights = [Fraction(0) for _ in given_]
    equal = [Fraction(0) for _ in given_]
    for at in range(MOMENTS):
        is_open = [c.start_us <= at < c.end_us for c in given_]
        decodes = [
            o and c.measured is not None and not c.lost and at >= max(c.end_us - c.measured.decode_us, c.start_us)
            for c, o in zip(given_, is_open, strict=True)
        ]
        for n in range(len(given_)):
            equal[n] += Fraction(is_open[n], sum(is_open) or 1)
            weights[n] += Fraction(decodes[n], sum(decodes) or 1)
    for n, c in enumerate(given_):
        weights[n] += prefill_inside(c)
    known = [c.measured is not None and not c.lost and sum(weights) > 0 for c in given_]
    busy = sum(equal)
    rest = busy - sum(share for share, k in zip(equal, known, strict=True) if not k)
    total = sum(weights)
    return [
        (rest * weight / total, Fraction(0)) if k else (Fraction(0), share)
        for weight, share, k in zip(weights, equal, known, strict=True)
    ]


def prefill_inside(c: Call) -> Fraction:
    if c.measured is None or c.lost:
        return Fraction(0)
    until = max(c.end_us - c.measured.decode_us, c.start_us)
    start = max(until - c.measured.prefill_us, c.start_us)
    if start == until:
        return Fraction(c.measured.prefill_us if 0 <= until < MOMENTS else 0)
    inside = max(min(until, MOMENTS) - max(start, 0), 0)
    return Fraction(c.measured.prefill_us * inside, until - start)
