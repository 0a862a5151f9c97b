"""What a measurement reads of a ledger: each request once, in order, and nothing that is not known as a number."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from billing import SettlementState, Usage, UsageFlag
from billing.reports.timings import Timing, TimingsOf, timings_of
from billing.when import to_us
from tests.billing.invoicing.office import write
from tests.billing.samples import book, opened, price, settled

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
START_US = to_us(START)
HOUR = TimingsOf(START_US, START_US + 3600 * 1_000_000)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def test_each_request_has_its_times_and_its_tokens(where: Path | str) -> None:
    whole = replace(settled("a"), prefill_s=0.04, decode_s=1.9, miss_reason="evicted:64", lost_tokens=64)
    cut = settled("b", Usage(50, 10, 3), state=SettlementState.PARTIAL, flags=(UsageFlag.ESTIMATED,))
    failed = settled("c", None, state=SettlementState.FAILED)
    write(
        where,
        book(price()),
        *(opened("a", at=at(0)), whole),
        *(opened("b", at=at(1)), cut),
        *(opened("c", at=at(2)), failed),
        opened("d", at=at(3)),
        *(replace(opened("e", at=at(4)), stream=False), settled("e")),
        *(opened("early", at=at(-1)), settled("early")),
        *(opened("late", at=at(3600)), settled("late")),
    )
    found = list(timings_of(where, HOUR))
    assert [one.opened_at_us - START_US for one in found] == [second * 1_000_000 for second in range(5)]
    assert found[0] == Timing(START_US, "gpu-a", True, True, 0.05, 2.0, 0.04, 1.9, 1000, 900, 100, 64, "evicted")
    assert [(one.is_whole, one.is_over) for one in found[1:4]] == [(False, True), (False, True), (False, False)]
    assert found[1].cached_tokens is None, "a count of our own is not the engine's word"
    assert found[2].prompt_tokens is None
    assert found[4].ttft_s is None, "of an answer in one piece only the end is known"


def test_one_model_is_read_alone(where: Path | str) -> None:
    write(where, book(price()), opened("a", at=at(0)), settled("a"), opened("b", at=at(1), model="other"), settled("b"))
    found = list(timings_of(where, TimingsOf(HOUR.start_us, HOUR.end_us, "other")))
    assert [one.opened_at_us for one in found] == [START_US + 1_000_000]
