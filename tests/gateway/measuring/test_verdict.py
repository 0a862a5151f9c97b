"""The verdict against simulated truth: what would serve more if it were twice as fast."""

from dataclasses import replace
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.perf import PerfModel
from gateway.measuring.study import Frame, study_of
from gateway.measuring.types import Binds, Bottleneck, Limits, Study
from gateway.measuring.verdict import RULES, Situation, bottleneck_of
from tests.gateway.measuring.virtual import closed_loop, window_of

USUAL = PerfModel(0.005, 20_000.0, 0.0, 0.008, 0.00005, 1e-7)
LEVELS = (1, 2, 4, 8, 16)
EITHER = (False, True)


def study(lengths: tuple[int, int], limits: Limits, perf: PerfModel = USUAL, *, max_running: int = 256) -> Study:
    runs = ((clients, closed_loop(perf, clients, lengths, max_running=max_running)) for clients in LEVELS)
    return study_of("simulated", [window_of(*run, clients) for clients, run in runs], Frame(limits))


def served_per_s(perf: PerfModel, clients: int, lengths: tuple[int, int]) -> float:
    seen, end_s = closed_loop(perf, clients, lengths)
    return len(seen) / end_s


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from((16, 200, 1000, 8000)),
    st.sampled_from((4, 30, 200, 800)),
    st.integers(1, 12),
    st.floats(2_000, 50_000),
    st.floats(0.001, 0.03),
    st.floats(0.0, 0.002),
)
def test_what_is_named_is_what_serves_more_when_it_is_twice_as_fast(
    prompt: int, output: int, clients: int, rate: float, itl_s: float, itl_s_per_request: float
) -> None:
    perf = PerfModel(0.002, rate, 0.0, itl_s, itl_s_per_request)
    lengths = (prompt, output)
    named = study_of("s", [window_of(*closed_loop(perf, clients, lengths), clients)], Frame()).verdict.bottleneck
    faster_prefill = replace(perf, base_s=0.001, prefill_tokens_per_s=2 * rate)
    faster_decode = replace(perf, itl_s=itl_s / 2, itl_s_per_request=itl_s_per_request / 2)
    gains = served_per_s(faster_prefill, clients, lengths) - served_per_s(faster_decode, clients, lengths)
    assert (named, gains > 0) in (
        *((Bottleneck.PREFILL, True), (Bottleneck.DECODE, False)),
        *((Bottleneck.BOTH, True), (Bottleneck.BOTH, False)),
    )


def test_long_prompts_and_short_answers_are_prefill() -> None:
    found = study((8000, 8), Limits(ttft_s=1.0)).verdict
    assert (found.bottleneck, found.binds) == (Bottleneck.PREFILL, Binds.TTFT)
    assert found.is_saturated
    assert any("8-bit" in one for one in found.turn)


def test_an_open_loop_to_which_fewer_came_than_its_rate_by_chance_did_not_fall_behind() -> None:
    window = window_of(*closed_loop(USUAL, 4, (200, 20)), 4)
    found = study_of("s", [replace(window, clients=None, rate_per_s=1e6)], Frame())
    assert found.levels[0].in_flight > 1
    assert not found.verdict.is_saturated


def test_short_prompts_and_long_answers_are_decode() -> None:
    found = study((32, 600), Limits()).verdict
    assert (found.bottleneck, found.binds) == (Bottleneck.DECODE, Binds.NONE_GIVEN)
    assert any("less to read" in one for one in found.turn)


def test_a_tight_limit_of_itl_binds_where_prompts_hold_up_answers() -> None:
    found = study((2000, 60), Limits(ttft_s=5.0, itl_s=0.012)).verdict
    assert found.binds is Binds.ITL
    assert any("chunks of prefill" in one for one in found.turn)


def test_answers_that_wait_for_a_place_in_the_batch_are_told_from_those_that_wait_for_prompts() -> None:
    few = study((32, 600), Limits(ttft_s=1.0), max_running=4).verdict
    many = study((32, 600), Limits(ttft_s=1.0)).verdict
    assert any("max_num_seqs" in one and "wait before the batch" in one for one in few.turn)
    assert not any("wait before the batch" in one for one in many.turn)


def test_where_no_limit_is_broken_and_no_knee_reached_more_load_is_what_there_is_to_do() -> None:
    found = study((16, 200), Limits(ttft_s=60.0, itl_s=60.0), replace(USUAL, itl_s_per_request=0.0)).verdict
    assert not found.is_saturated
    assert found.binds is Binds.NEITHER
    assert "nothing yet" in found.turn[-1]


def test_of_a_time_that_nobody_knows_it_is_not_said_that_it_keeps_its_limit() -> None:
    windows = [window_of(*closed_loop(USUAL, clients, (500, 50)), clients) for clients in (1, 4)]
    untimed = [replace(one, seen=[msgspec.structs.replace(seen, first_s=None) for seen in one.seen]) for one in windows]
    reasons = study_of("s", untimed, Frame(Limits(ttft_s=9.0, itl_s=9.0))).verdict.reasons
    assert "TTFT is not known, so neither is whether it stays within 9 s" in reasons
    assert "ITL p90 stays within 9 s at every load" in reasons


@pytest.mark.parametrize("share", [None, 0.0, 0.4, 0.5, 0.6, 1.0])
def test_every_situation_that_is_known_has_something_to_turn(share: float | None) -> None:
    bottleneck = bottleneck_of(share)
    for binds, saturated, queues, left in product(Binds, EITHER, EITHER, EITHER):
        at = Situation(bottleneck, binds, saturated, queues, left)
        if bottleneck is not Bottleneck.UNKNOWN:
            assert any(rule.fits(at) for rule in RULES), at


def test_every_rule_is_for_some_situation() -> None:
    situations = [Situation(*one) for one in product(Bottleneck, Binds, EITHER, EITHER, EITHER)]
    assert all(any(rule.fits(at) for at in situations) for rule in RULES)
