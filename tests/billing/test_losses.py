"""What misses lost in a period, by who asked for what, why, and in which part of the prompt; in either database."""

from datetime import timedelta

from msgspec.structs import replace

from billing import Query, Usage, open_ledger, report_of
from billing.reading import reading
from billing.verification.losses import Loss, by_reason, losses
from billing.when import to_us
from tests.billing.conftest import Where
from tests.billing.samples import NOON, book, opened, settled

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


async def lost_in(where: Where, *rows: tuple[str, str | None, str | None, int | None]) -> list[Loss]:
    """Tenant, reason, segment and lost tokens of a request each minute; the first hour is the period."""
    async with open_ledger(where, book()) as ledger:
        for number, (tenant, reason, segment, lost) in enumerate(rows):
            await ledger.open(replace(opened(f"{number}", at=NOON + number * MINUTE), tenant_id=tenant))
            done = replace(settled(f"{number}"), miss_reason=reason, changed_segment=segment, lost_tokens=lost)
            await ledger.settle(done)
    with reading(where) as connection:
        return losses(connection, to_us(NOON), to_us(NOON + 60 * MINUTE))


async def test_losses_are_added_by_tenant_reason_and_segment_dearest_first(where: Where) -> None:
    found = await lost_in(
        where,
        ("acme", "prompt_changed:12", "system time", 960),
        ("acme", "evicted", None, 320),
        ("acme", "prompt_changed:16", "system time", 944),
        ("acme", None, None, None),
        ("bolt", "prompt_changed:12", "system time", 2000),
        ("bolt", None, "tools order", 500),
        ("bolt", "cold", None, 0),
    )
    told = [(one.tenant_id, one.reason, one.changed_segment, one.requests, one.of, one.lost_tokens) for one in found]
    assert told == [
        ("bolt", "prompt_changed", "system time", 1, 3, 2000),
        ("acme", "prompt_changed", "system time", 2, 4, 1904),
        ("bolt", None, "tools order", 1, 3, 500),
        ("acme", "evicted", None, 1, 4, 320),
        ("bolt", "cold", None, 1, 3, 0),
    ]
    assert (found[1].first_us, found[1].last_us) == (to_us(NOON), to_us(NOON + 2 * MINUTE))
    assert by_reason(found) == {"cold": (1, 0), "evicted": (1, 320), "prompt_changed": (3, 3904)}


async def test_a_period_without_losses_has_none(where: Where) -> None:
    assert await lost_in(where, ("acme", None, None, None)) == []


async def test_prompts_that_changed_are_told_in_a_report_by_what_changed_in_them(where: Where) -> None:
    segments = ("system time", "system time", "message 1 user", "message 3 user", "message 12 tool")
    async with open_ledger(where, book()) as ledger:
        for n, segment in enumerate(segments):
            usage = Usage(1000, 100, 1)
            done = replace(settled(f"{n}", usage), miss_reason="prompt_changed:96", lost_tokens=10 * n)
            await ledger.open(opened(f"{n}"))
            await ledger.settle(replace(done, changed_segment=segment))
    found = report_of(where, Query(NOON - DAY, NOON + DAY, (), with_misses=True))
    assert found.misses is not None
    assert [(one.part, one.requests, one.lost_tokens) for one in found.misses] == [
        ("later messages", 2, 70),
        ("message 1 user", 1, 20),
        ("system time", 2, 10),
    ]
