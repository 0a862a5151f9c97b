"""A ledger's requests as levels: what a simulated engine did, found again from its rows."""

from collections.abc import Iterable
from itertools import chain

import pytest

from backends.perf import PerfModel
from billing.reports.timings import Timing
from gateway.measuring import past
from gateway.measuring.errors import NothingMeasured
from gateway.measuring.past import record_of, study_past
from gateway.measuring.study import Frame
from gateway.measuring.types import Binds, Bottleneck, Limits, Seen
from tests.gateway.measuring.virtual import closed_loop

PERF = PerfModel(0.005, 20_000.0, 0.0, 0.02, 0.0005)
US = 1_000_000


def timing(one: Seen, after_s: float = 0.0, **other: object) -> Timing:
    fields: dict[str, object] = {
        "opened_at_us": round((one.asked_s + after_s) * US),
        "endpoint_id": "gpu-a",
        "is_whole": True,
        "is_over": True,
        "ttft_s": one.first_s,
        "duration_s": (one.ended_s or 0.0) - one.asked_s,
        "prefill_s": one.prefill_s,
        "decode_s": one.decode_s,
        "prompt_tokens": one.prompt_tokens,
        "cached_tokens": one.cached_tokens,
        "output_tokens": one.output_tokens,
        "lost_tokens": None,
        "miss_reason": None,
    }
    return Timing(**{**fields, **other})  # type: ignore[arg-type]  # a value of each kind


def one_after_the_other(lengths: tuple[int, int], loads: Iterable[int]) -> tuple[list[Timing], int]:
    """Loads of so many clients, each after the one before has ended; and when all is over, in microseconds."""
    rows: list[Timing] = []
    now_s = 0.0
    for clients in loads:
        seen, end_s = closed_loop(PERF, clients, lengths, answers=max(60 // clients, 6))
        rows += (timing(one, now_s) for one in seen)
        now_s += end_s + 30.0
    return sorted(rows, key=lambda row: row.opened_at_us), round(now_s * US)


def test_prefill_is_found_in_rows_of_long_prompts_and_decode_in_those_of_long_answers() -> None:
    for lengths, bottleneck in (((8000, 4), Bottleneck.PREFILL), ((64, 300), Bottleneck.DECODE)):
        rows, end_us = one_after_the_other(lengths, (1, 4, 16))
        study = study_past("ledger", record_of(rows, 0, end_us), Frame())
        assert study.verdict.bottleneck is bottleneck
        assert study.engines == 1
        assert len(study.levels) >= 3


def test_times_rise_with_load_and_the_limit_that_they_break_binds() -> None:
    rows, end_us = one_after_the_other((2000, 40), (1, 4, 16))
    study = study_past("ledger", record_of(rows, 0, end_us), Frame(Limits(ttft_s=60.0, itl_s=0.03)))
    itl = [level.itl.p50 for level in study.levels if level.itl is not None]
    assert itl == sorted(itl)
    assert study.verdict.binds is Binds.ITL
    assert study.arrivals is not None


def test_the_ceiling_counts_what_had_been_computed_before() -> None:
    one = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, prompt_tokens=1000, cached_tokens=100, output_tokens=2)
    rows = [
        timing(one, lost_tokens=300, miss_reason="evicted"),
        timing(one, 1.0, lost_tokens=500, miss_reason="prompt_changed"),
        timing(one, 2.0, cached_tokens=None),
    ]
    record = record_of(rows, 0, 10 * US)
    assert record.ceiling_share == pytest.approx(500 / 2000)
    assert study_past("ledger", record, Frame()).hit_share == pytest.approx(0.1)


def test_a_request_whose_end_nobody_saw_is_no_load_and_no_answer() -> None:
    one = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, prompt_tokens=10, cached_tokens=0, output_tokens=2)
    lost = timing(one, 0.5, is_whole=False, is_over=False, duration_s=None, ttft_s=None)
    record = record_of([timing(one), lost], 0, 10 * US)
    study = study_past("ledger", record, Frame())
    assert sum(level.requests for level in study.levels) == 2
    assert study.levels[0].in_flight == pytest.approx(0.2 / 10)


def test_a_long_period_is_read_as_far_as_memory_goes_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MOST_REQUESTS", 2)
    one = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, output_tokens=2)
    record = record_of((timing(one, at_s) for at_s in (0.0, 1.0, 2.0, 3.0)), 0, 100 * US)
    assert (len(record.seen), record.lasts_s, record.is_cut) == (2, 2.0, True)
    assert any("only the first 2" in note for note in study_past("ledger", record, Frame()).notes)


def test_answers_in_one_piece_are_counted_as_such() -> None:
    one = Seen(0.0, None, None, 0.2, is_whole=True, prompt_tokens=10, output_tokens=5)
    study = study_past("ledger", record_of([timing(one, at_s) for at_s in range(3)], 0, 20 * US), Frame())
    assert any("3 answers came in one piece" in note for note in study.notes)
    assert study.levels[0].ttft is None
    assert study.verdict.bottleneck is Bottleneck.UNKNOWN


def test_few_requests_under_much_load_are_of_the_level_before() -> None:
    alone = [timing(Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, output_tokens=2), at_s) for at_s in range(25)]
    together = [timing(Seen(0.0, 5.0, 3.0, 8.0, is_whole=True, output_tokens=2), 31 + 0.01 * n) for n in range(9)]
    study = study_past("ledger", record_of([*alone, *together], 0, 40 * US), Frame())
    assert [level.requests for level in study.levels] == [34]


@pytest.mark.parametrize("lasts_s", [7, 15, 25, 47])
def test_every_request_of_a_period_is_of_a_level_whatever_its_length(lasts_s: int) -> None:
    one = Seen(0.0, 0.1, 0.1, 0.2, is_whole=True, output_tokens=2)
    rows = [timing(one, at_s) for at_s in range(lasts_s)]
    study = study_past("ledger", record_of(rows, 0, lasts_s * US), Frame())
    assert sum(level.requests for level in study.levels) == lasts_s
    assert sum(level.seconds for level in study.levels) == pytest.approx(lasts_s)


def test_an_empty_period_is_refused() -> None:
    with pytest.raises(NothingMeasured):
        study_past("ledger", record_of(chain(), 0, US), Frame())


@pytest.mark.parametrize("duration_s", [0.0, -1.0])
def test_requests_that_took_no_time_are_a_level(duration_s: float) -> None:
    row = timing(Seen(1.0, 0.0, 0.0, 1.0, is_whole=True, prompt_tokens=3, output_tokens=1), duration_s=duration_s)
    study = study_past("ledger", record_of([row], 0, 60 * US), Frame())
    assert [level.requests for level in study.levels] == [1]
