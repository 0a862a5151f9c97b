"""Traffic by spans of time: against plain sums of the same requests, in both databases; percentiles against sorting."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from billing import ReportTooSlow, SettlementState, Usage, UsageFlag
from billing.reports import reading
from billing.reports.traffic import AVOIDABLE, BOUNDS_S, PER_DECADE, Missed, Traffic, percentile_s, sum_of, traffic_of
from billing.types import Settlement
from billing.verification.verdicts import MissReason
from billing.when import to_us
from tests.billing.invoicing.office import Written, write
from tests.billing.samples import book, opened, price, settled

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
MINUTE_US = 60 * 1_000_000
MINUTES = 5
FACTOR = 10 ** (1 / PER_DECADE)


def drawn(dice: random.Random, name: str, at: datetime) -> Settlement | None:
    """How a request ended; None while it has not."""
    state = dice.choice([*[SettlementState.COMPLETE] * 6, SettlementState.PARTIAL, SettlementState.FAILED, None])
    if state is None:
        return None
    cached = dice.choice([None, 0, 64, 512])
    usage = None if state is SettlementState.FAILED else Usage(1000, cached, dice.choice([None, 1, 40]))
    reason = dice.choice([None, "evicted", "routed_elsewhere:128", "prompt_changed:7", "unknown", "cold"])
    one = settled(
        name,
        usage,
        state=state,
        at=at,
        flags=dice.choice([(), (UsageFlag.ESTIMATED,)]),
        expected_cached_tokens=dice.choice([None, 0, 512]),
    )
    return replace(
        one,
        ttft_s=dice.choice([None, 0.004, 0.3, 7.0, 5000.0]),
        decode_s=dice.choice([None, 0.39, 3.9]),
        miss_reason=reason,
        lost_tokens=None if reason in (None, "unknown") else dice.randrange(0, 500),
    )


def plain(ended: Sequence[Settlement | None]) -> Traffic:
    """The same by hand."""
    whole = Traffic()
    for one in ended:
        whole.requests += 1
        whole.in_flight += one is None
        if one is None:
            continue
        whole.failed += one.state is SettlementState.FAILED
        usage, lost = one.usage, one.lost_tokens
        is_reported = usage is not None and usage.cached_tokens is not None and UsageFlag.ESTIMATED not in one.flags
        sums = {
            "prompt_tokens": usage.prompt_tokens if usage else None,
            "output_tokens": usage.output_tokens if usage else None,
        }
        if is_reported and usage is not None:
            sums |= {"reported_prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}
            sums |= {"lost_tokens": lost}
            if one.expected_cached_tokens is not None:
                sums["compared_prompt_tokens"] = usage.prompt_tokens
                sums["expected_cached_tokens"] = one.expected_cached_tokens
        for name, value in sums.items():
            whole.tokens[name] += value or 0
        if one.miss_reason is not None:
            missed = sum_of([Traffic(misses={one.miss_reason.partition(":")[0]: _missed(is_reported, lost)})])
            whole = sum_of([whole, missed])
        if one.state is SettlementState.COMPLETE:
            _count(whole.ttft, one.ttft_s)
            tokens = usage.output_tokens if usage else None
            _count(whole.itl, one.decode_s / (tokens - 1) if one.decode_s and tokens and tokens > 1 else None)
    return whole


def _missed(is_reported: bool, lost: int | None) -> Missed:
    return Missed(1, (lost or 0) if is_reported else 0, int(is_reported and lost is None))


def _count(counts: list[int], value_s: float | None) -> None:
    if value_s is not None:
        counts[next((place for place, bound in enumerate(BOUNDS_S) if value_s <= bound), len(BOUNDS_S))] += 1


def test_spans_are_sums_of_their_requests(where: Path | str) -> None:
    dice = random.Random(7)
    records: list[Written] = []
    by_minute: list[list[Settlement | None]] = [[] for _ in range(MINUTES)]
    for number in range(150):
        name, second = f"r{number}", dice.randrange(60 * MINUTES)
        at = START + timedelta(seconds=second)
        one = drawn(dice, name, at + timedelta(seconds=3))
        records += [opened(name, at=at)] if one is None else [opened(name, at=at), one]
        by_minute[second // 60].append(one)
    records += [opened("before", at=START - timedelta(microseconds=1)), settled("before")]
    records += [opened("after", at=START + timedelta(minutes=MINUTES)), settled("after")]
    write(where, book(price()), *records)
    start_us = to_us(START)
    found = traffic_of(where, start_us, start_us + MINUTES * MINUTE_US, MINUTE_US)
    assert list(found) == [start_us + minute * MINUTE_US for minute in range(MINUTES)]
    for minute, traffic in enumerate(found.values()):
        assert traffic == plain(by_minute[minute])
    whole = traffic_of(where, start_us, start_us + MINUTES * MINUTE_US, MINUTES * MINUTE_US)
    assert whole[start_us] == sum_of(found.values())
    assert whole[start_us].hit_share is not None


def test_a_reading_has_its_deadline(ledger_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_STEPS_BETWEEN_LOOKS", 1000)
    many: list[Written] = [
        one for number in range(800) for one in (opened(f"r{number}", at=START), settled(f"r{number}"))
    ]
    write(ledger_path, book(price()), *many)
    with pytest.raises(ReportTooSlow):
        traffic_of(ledger_path, to_us(START), to_us(START) + MINUTE_US, MINUTE_US, deadline_s=0.0)


def test_the_ceiling_adds_what_was_avoidable_and_nothing_else() -> None:
    ended = [
        replace(settled("a", Usage(1000, 100, 1)), miss_reason="evicted", lost_tokens=300),
        replace(settled("b", Usage(1000, 100, 1)), miss_reason="prompt_changed:3", lost_tokens=500),
    ]
    one = plain(ended)
    assert (one.hit_share, one.ceiling_share, one.unknown_misses) == (0.1, 0.25, 0)
    assert {MissReason.COLD, MissReason.PROMPT_CHANGED, MissReason.UNKNOWN} & AVOIDABLE == set()
    assert (Traffic().hit_share, Traffic().ceiling_share, Traffic().expected_share) == (None, None, None)


@given(st.lists(st.floats(0.0002, 900.0), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_within_a_bucket_of_what_sorting_says(values: list[float], share: float) -> None:
    counts = [0] * (len(BOUNDS_S) + 1)
    for value in values:
        _count(counts, value)
    ordered = sorted(values)
    exact = next(value for place, value in enumerate(ordered, 1) if place >= share * len(ordered))
    found = percentile_s(counts, share)
    assert found is not None
    assert exact / FACTOR <= found * 1.000001
    assert found <= exact * FACTOR * 1.000001


def test_no_values_have_no_percentile_and_what_is_beyond_all_bounds_is_told_as_the_last() -> None:
    assert percentile_s([0] * (len(BOUNDS_S) + 1), 0.5) is None
    assert percentile_s([0] * len(BOUNDS_S) + [3], 0.5) == pytest.approx(BOUNDS_S[-1])
