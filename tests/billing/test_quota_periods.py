"""Days and months of budgets, in time zones that skip hours, repeat them, or skip midnight."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.quotas.periods import Periods, purses_of
from billing.quotas.types import Allowance, Budget, Per

ZONES = ["UTC", "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "America/Santiago", "Africa/Cairo"]


def purse_at(per: Per, zone: str, at: datetime) -> tuple[str, datetime, datetime]:
    (purse,) = purses_of((Allowance(None, budgets=(Budget(1, per, zone),)),), at)
    return purse.name, purse.start, purse.end


@given(
    st.sampled_from(list(Per)),
    st.sampled_from(ZONES),
    st.integers(0, 37 * 365 * 24 * 3600).map(lambda s: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=s)),
)
def test_each_moment_lies_in_one_period_and_the_next_begins_where_it_ends(per: Per, zone: str, at: datetime) -> None:
    name, start, end = purse_at(per, zone, at)
    assert start <= at < end
    assert purse_at(per, zone, start)[0] == name
    assert purse_at(per, zone, end - timedelta(microseconds=1))[0] == name
    after = purse_at(per, zone, end)
    assert after[0] != name
    assert after[1] == end
    assert f"{start.astimezone(ZoneInfo(zone)):%Y%m%d}".startswith(name.rsplit(":", 1)[1])


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [("Europe/Berlin", "2026-03-29", 23), ("Europe/Berlin", "2026-10-25", 25), ("Asia/Kolkata", "2026-03-29", 24)],
)
def test_a_day_on_which_clocks_change_is_shorter_or_longer(zone: str, day: str, hours: int) -> None:
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone))
    _, start, end = purse_at(Per.DAY, zone, noon)
    assert end - start == timedelta(hours=hours)


def test_a_day_without_a_midnight_begins_with_its_first_instant() -> None:
    # Cairo went from 2026-04-23 24:00 straight to 2026-04-24 01:00.
    noon = datetime(2026, 4, 24, 12, tzinfo=ZoneInfo("Africa/Cairo"))
    _, start, end = purse_at(Per.DAY, "Africa/Cairo", noon)
    assert (end - start, start) == (timedelta(hours=23), datetime(2026, 4, 23, 22, tzinfo=UTC))


@given(st.lists(st.integers(0, 400 * 24 * 3600), min_size=1))
def test_what_is_remembered_is_what_would_be_found(seconds: list[int]) -> None:
    periods = Periods()
    budgets = (Budget(1, Per.DAY, "Asia/Tokyo"), Budget(1, Per.MONTH, "America/New_York"), Budget(2, Per.DAY))
    several = [(Allowance(None, budgets=budgets), Allowance("k", budgets=budgets[:1])), (Allowance("k"),)]
    for second in seconds:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        for allowances in several:
            assert periods.purses_of(allowances, at) == purses_of(allowances, at)


def test_purses_are_one_object_while_their_periods_last_and_bounded() -> None:
    periods, noon = Periods(), datetime(2026, 1, 2, 12, tzinfo=UTC)
    allowances = (Allowance("k", budgets=(Budget(1, Per.DAY),)),)
    assert periods.purses_of(allowances, noon) is periods.purses_of(allowances, noon + timedelta(hours=11))
    assert periods.purses_of(allowances, noon) is not periods.purses_of(allowances, noon + timedelta(hours=12))
    for number in range(5000):
        periods.purses_of((Allowance(f"{number}", budgets=(Budget(1, Per.DAY),)),), noon)
    assert len(periods._kept) <= 4096


def test_budgets_in_two_currencies_are_two_counters() -> None:
    budgets = (Budget(1, Per.DAY), Budget(1, Per.DAY, currency="JPY"))
    names = {purse.name for purse in purses_of((Allowance("k", budgets=budgets),), datetime(2026, 1, 2, tzinfo=UTC))}
    assert names == {"k:k:day:UTC:20260102", "k:k:day:UTC:20260102:JPY"}
