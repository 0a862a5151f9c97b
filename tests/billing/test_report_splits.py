"""Reports split by names, tags and time: roll-ups equal rows, days add up to months in any zone."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from billing import (
    About,
    LedgerUnavailable,
    OpenedRequest,
    PeriodInvalid,
    PriceBook,
    Query,
    ReportInvalid,
    ReportTooSlow,
    Settlement,
    SettlementState,
    Source,
    Usage,
    UsageFlag,
    open_ledger,
    report_of,
)
from billing.reports.query import split_names, tag_filter
from billing.reports.reading import one_view, place_of
from billing.reports.report import Report
from billing.reports.text import json_of, render_csv, render_misses, render_table
from billing.reports.zones import Step, asked_period, hours_of, month_named, spans
from billing.types import Correction, CorrectionKind, Verdict
from billing.when import to_us, zone_named
from tests.billing.conftest import Where
from tests.billing.samples import LONG_AGO, NOON, book, opened, price, settled
from tests.billing.test_report import PRICES, text_of

PICO = 10**12
ZONES = ("UTC", "Asia/Kolkata", "Asia/Kathmandu", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
Record = OpenedRequest | Settlement | Correction


async def write(path: Where, prices: PriceBook, records: Iterable[Record]) -> None:
    async with open_ledger(path, prices) as ledger:
        writes: list[Awaitable[object]] = []
        for record in records:
            match record:
                case OpenedRequest():
                    writes.append(ledger.open(record))
                case Settlement():
                    writes.append(ledger.settle(record))
                case Correction():
                    writes.append(ledger.correct(record))
        await asyncio.gather(*writes)


def credit(id_: str, pico: int, at: datetime = NOON, tenant: str = "acme", **more: Any) -> Correction:
    made = Correction(id_, at, None, tenant, None, None, CorrectionKind.CREDIT, "a miss of ours", "USD", 0, pico)
    return structs.replace(made, **more)


def charged(found: Report) -> int:
    return sum(line.tally.charged_pico or 0 for line in found.lines)


def by_group(found: Report, name: str) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for line in found.lines:
        sums[line.group[name]] += line.tally.requests
    return dict(sums)


tags = st.none() | st.dictionaries(st.sampled_from(["team", "env"]), st.sampled_from(["a", "b", 'q"']), max_size=2)
usages = st.none() | st.builds(
    lambda prompt, share, output: Usage(prompt, None if share is None else prompt * share // 100, output),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(0, 10**6),
)
calls = st.lists(
    st.tuples(
        st.sampled_from(["acme", "bolt"]),
        st.sampled_from(["llama", "qwen", "unpriced"]),
        st.none() | st.sampled_from(list(SettlementState)),
        usages,
        st.integers(0, 40 * 24 * 3600),
        tags,
        st.none() | st.sampled_from(list(Verdict)),
    ),
    max_size=25,
)
splits = st.lists(
    st.sampled_from(["tenant", "key", "model", "price", "tags", "tag:team", "tag:none"]), unique=True, max_size=4
).flatmap(lambda names: st.sampled_from([(*names,), *((*names, step.value) for step in Step)]))


@given(calls, splits, st.sampled_from(ZONES), st.integers(0, 5_000), st.integers(0, 5_000))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_report_from_roll_ups_is_that_from_rows_for_any_split_zone_and_ragged_period(
    tmp_path_factory: pytest.TempPathFactory,
    asked: list[Any],
    by: tuple[str, ...],
    zone: str,
    early_s: int,
    late_s: int,
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    records: list[Record] = []
    for n, (tenant, model, state, usage, second, tagged, verdict) in enumerate(asked):
        at = LONG_AGO + timedelta(seconds=second)
        request = opened(f"{n}", at=at, tenant=tenant, model=model)
        records.append(structs.replace(request, key_id=f"{tenant}-{n % 2}", tags=tagged or None))
        if state is not None:
            records.append(structs.replace(settled(f"{n}", usage, state=state), verdict=verdict))
    asyncio.run(write(path, PRICES, records))
    start = LONG_AGO + timedelta(seconds=early_s)
    query = Query(start, LONG_AGO + timedelta(days=40, seconds=-late_s), by, ZoneInfo(zone))
    rolled, read = (report_of(path, replace(query, source=source)) for source in (Source.ROLL_UPS, Source.ROWS))
    assert rolled.lines == read.lines
    assert rolled.totals == read.totals
    assert sum(line.tally.requests for line in read.lines) == sum(total.requests for total in read.totals.values())


@pytest.mark.parametrize(
    ("zone", "month"),
    [
        ("Asia/Kolkata", "2026-11"),
        ("Asia/Kathmandu", "2026-11"),
        ("Europe/Berlin", "2026-03"),
        ("Europe/Berlin", "2026-10"),
        ("America/New_York", "2026-03"),
        ("America/New_York", "2026-11"),
        ("Australia/Lord_Howe", "2026-04"),
        ("Australia/Lord_Howe", "2026-10"),
    ],
)
async def test_scenario_p_the_days_and_hours_of_a_month_add_up_to_it_in_any_zone(
    where: Where, zone: str, month: str
) -> None:
    here = ZoneInfo(zone)
    start, end = month_named(month, here)
    instants = [start - timedelta(microseconds=1), start, end - timedelta(microseconds=1), end]
    instants += [start + n * timedelta(hours=7, minutes=13) for n in range(100)]
    for before, _ in pairwise(spans(to_us(start), to_us(end), here)):
        change = datetime.fromtimestamp(before.end_us / 10**6, UTC)
        instants += [change + n * timedelta(minutes=15) for n in range(-6, 7)]
    records: list[Record] = []
    for n, at in enumerate(instants):
        records += [opened(f"{n}", at=at), settled(f"{n}", Usage(1000 + n, n, 7))]
    await write(where, book(), records)
    whole = report_of(where, Query(start, end, ("month",), here))
    assert {line.group["month"] for line in whole.lines} == {month}
    for step, name_of in (
        ("day", lambda at: at.date().isoformat()),
        ("hour", lambda at: f"{at:%Y-%m-%dT%H}:00{at.isoformat()[-6:]}"),
    ):
        expected: dict[str, int] = defaultdict(int)
        for at in instants:
            if start <= at < end:
                expected[name_of(at.astimezone(here))] += 1
        for source in Source:
            found = report_of(where, Query(start, end, (step,), here, source=source))
            assert by_group(found, step) == expected
            assert [line.group[step] for line in found.lines] == sorted(
                expected, key=lambda name: datetime.fromisoformat(name).timestamp()
            )
            assert charged(found) == charged(whole)
            assert found.totals["USD"] == whole.totals["USD"]


def test_an_hour_that_comes_twice_is_two_and_a_day_has_twenty_five() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start, end = asked_period("2026-10-25", "2026-10-26", None, berlin)
    assert end - start == timedelta(hours=25)
    assert len(spans(to_us(start), to_us(end), berlin)) == 2
    early, late = (to_us(datetime(2026, 10, 25, hour, 30, tzinfo=UTC)) for hour in (0, 1))
    assert hours_of(early, berlin)[1] == hours_of(late, berlin)[0]
    assert asked_period("2026-03-29", "2026-03-30", None, berlin)[1] - asked_period(
        "2026-03-29", "2026-03-30", None, berlin
    )[0] == timedelta(hours=23)


def test_periods_are_read_in_the_zone_unless_they_say_their_own() -> None:
    kathmandu = zone_named("Asia/Kathmandu")
    assert asked_period("2026-11-01", "2026-11-02T00:00+05:30", None, kathmandu) == (
        datetime(2026, 10, 31, 18, 15, tzinfo=UTC),
        datetime(2026, 11, 1, 18, 30, tzinfo=UTC),
    )
    assert asked_period(None, None, "2026-12", kathmandu)[1] == datetime(2026, 12, 31, 18, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "given_",
    [
        (None, None, None),
        ("2026-11-01", None, None),
        ("2026-11-01", "2026-12-01", "2026-11"),
        (None, None, "2026-13"),
        (None, None, "11-2026"),
        ("2026-11-02", "2026-11-01", None),
        ("yesterday", "2026-11-01", None),
        (None, None, "9999-12"),
        (None, None, "0000-01"),
    ],
)
def test_a_period_that_is_none_is_refused(given_: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(PeriodInvalid):
        asked_period(*given_, ZoneInfo("UTC"))


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "", "Europe", "a\0b"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(PeriodInvalid, match="no time zone"):
        zone_named(name)


@pytest.mark.parametrize(
    "names", [["planet"], ["tag:"], ["day", "hour"], ["day,day"], ["key"] * 2, [",".join("abcdefghi")]]
)
def test_a_split_that_there_is_not_is_refused(names: list[str]) -> None:
    with pytest.raises(ReportInvalid):
        split_names(names)


def test_tags_to_look_for_have_a_name_and_a_value() -> None:
    assert tag_filter(["team=search", "a==b"]) == {"team": "search", "a": "=b"}
    for wrong in ("team", "=x"):
        with pytest.raises(ReportInvalid):
            tag_filter([wrong])


async def test_tags_split_and_choose_requests_and_a_name_inside_a_name_is_another(where: Where) -> None:
    shapes = [{"team": "a"}, {"team": "b", "env": "p"}, None, {'x"team': "a"}, {"y": ',"team":"a"'}, {"team": "ab"}]
    records: list[Record] = []
    for n, shape in enumerate(shapes):
        records += [structs.replace(opened(f"{n}"), tags=shape), settled(f"{n}")]
    await write(where, book(), records)
    period = (NOON - timedelta(days=1), NOON + timedelta(days=1))
    for source in Source:
        split = report_of(where, Query(*period, ("tag:team",), source=source))
        assert by_group(split, "tag:team") == {"": 3, "a": 1, "ab": 1, "b": 1}
        chosen = report_of(where, Query(*period, (), about=About(tags={"team": "a"}), source=source))
        assert [line.tally.requests for line in chosen.lines] == [1]
        both = report_of(where, Query(*period, (), about=About(tags={"team": "b", "env": "q"}), source=source))
        assert both.lines == ()


async def test_a_price_that_changes_within_a_period_is_two_lines_of_one_sum(where: Where) -> None:
    noon = NOON
    prices = book(price("1", "0.1", "2", id_="old", valid_to=noon), price("3", "0.3", "6", id_="new", valid_from=noon))
    records: list[Record] = []
    for n, at in enumerate([noon - timedelta(microseconds=1), noon, noon + timedelta(hours=1)]):
        records += [opened(f"{n}", at=at), settled(f"{n}", Usage(1_000_000, 500_000, 1_000_000))]
    await write(where, prices, records)
    for source in Source:
        found = report_of(where, Query(noon - timedelta(days=1), noon + timedelta(days=1), ("price",), source=source))
        amounts = {line.group["price"]: line.tally.charged_pico for line in found.lines}
        assert amounts == {"old": 2_550_000_000_000, "new": 2 * 7_650_000_000_000}
        assert found.totals["USD"].charged_pico == 17_850_000_000_000


async def test_corrections_are_lines_of_their_own_in_the_period_in_which_they_are_made(where: Where) -> None:
    records: list[Record] = [
        opened(),
        settled(),
        credit("1", -5),
        credit("2", -7, at=NOON + timedelta(days=1), key_id="key-1", model="llama"),
        credit("3", -11, at=NOON + timedelta(days=60)),
        credit("4", 13, tenant="=bolt", kind=CorrectionKind.CORRECTION, full_pico=13),
        credit("5", -3),
    ]
    await write(where, book(), records)
    query = Query(NOON - timedelta(days=5), NOON + timedelta(days=5), ("tenant", "day"))
    found = report_of(where, query)
    day = (NOON + timedelta(days=1)).date().isoformat()
    assert [(dict(one.group), one.kind, one.count, one.charged_pico) for one in found.adjustments] == [
        ({"tenant": "=bolt", "day": NOON.date().isoformat()}, "correction", 1, 13),
        ({"tenant": "acme", "day": NOON.date().isoformat()}, "credit", 2, -8),
        ({"tenant": "acme", "day": day}, "credit", 1, -7),
    ]
    usage = found.totals["USD"].charged_pico
    assert usage is not None
    assert found.payable_pico() == {"USD": usage + 13 - 15}
    text = text_of(found)
    assert "2 credits" in text
    assert "after adjustments" in text
    lines = render_csv(found).splitlines()
    assert lines[2].startswith("correction,'=bolt,2026-11-15,USD")
    assert lines[2].endswith("0.000000000013,0.000000000013,0.000000000000")
    about_key = report_of(where, replace(query, by=("key",), about=About(key="key-1")))
    assert [one.charged_pico for one in about_key.adjustments] == [-7]
    assert report_of(where, replace(query, about=About(tags={"a": "b"}))).adjustments == ()


async def test_corrections_without_usage_are_payable(where: Where) -> None:
    await write(where, book(), [credit("1", -(10**20), full_pico=10**20)])
    found = report_of(where, Query(NOON - timedelta(days=1), NOON + timedelta(days=1), ()))
    assert found.payable_pico() == {"USD": -(10**20)}
    assert text_of(found).count("-100,000,000.00") == 2


async def test_verdicts_doubts_coverage_and_misses_are_told(where: Where) -> None:
    records: list[Record] = []
    for n, (verdict, flags, reason, usage, lost) in enumerate(
        [
            (Verdict.VERIFIED, (), None, Usage(1000, 900, 1), None),
            (Verdict.ENGINE_HIGHER, (UsageFlag.DISPUTED,), "cold", Usage(1000, 999, 1), 0),
            (Verdict.ENGINE_LOWER, (), "evicted", Usage(1000, 100, 1), 800),
            (Verdict.UNREPORTED, (), "evicted", Usage(1000, None, 1), None),
        ]
    ):
        done = structs.replace(
            settled(f"{n}", usage, flags=flags), verdict=verdict, miss_reason=reason, lost_tokens=lost
        )
        records += [structs.replace(opened(f"{n}"), tags={"team": "a"}), done]
    await write(where, book(), records)
    query = Query(NOON - timedelta(days=1), NOON + timedelta(days=1), (), with_misses=True)
    found = report_of(where, query)
    total = found.totals["USD"]
    assert (total.verified_cached_tokens, total.disputed_cached_tokens) == (900, 999)
    assert dict(total.verdicts) == dict.fromkeys(Verdict, 1)
    assert total.coverage == 0.75
    assert total.list_pico == total.charged_pico
    assert found.misses is not None
    assert [(one.reason, one.requests, one.computed_tokens, one.lost_tokens) for one in found.misses] == [
        ("cold", 1, 1, 0),
        ("evicted", 2, 1900, 800),
    ]
    assert json_of(found)["misses"] == [
        {"reason": "cold", "part": None, "requests": 1, "computed_tokens": 1, "lost_tokens": 0},
        {"reason": "evicted", "part": None, "requests": 2, "computed_tokens": 1900, "lost_tokens": 800},
    ]
    assert render_misses(found) is not None
    assert render_misses(report_of(where, replace(query, with_misses=False))) is None
    nobody = report_of(where, replace(query, about=About(tags={"team": "b"})))
    assert nobody.misses == ()
    assert "1 engine higher, 1 engine lower" in text_of(found)
    json.dumps(json_of(found))


async def test_ten_billion_yen_from_roll_ups_and_from_rows(where: Where) -> None:
    prices = PriceBook("JPY", (replace(price("999999999.999999", None, "0"), currency="JPY"),))
    tokens = 2**31 - 1
    records: list[Record] = []
    for n in range(30):
        records += [opened(f"{n}", at=NOON + timedelta(hours=n % 3)), settled(f"{n}", Usage(tokens, 0, 0))]
    await write(where, prices, records)
    for source in Source:
        found = report_of(where, Query(NOON, NOON + timedelta(days=1), ("tenant", "hour"), source=source))
        assert found.totals["JPY"].charged_pico == 30 * tokens * 999_999_999_999_999
        assert len(found.lines) == 3
        assert charged(found) > 10**10 * PICO


async def test_a_period_of_centuries_is_cut_to_what_there_is(where: Where) -> None:
    await write(where, book(), [opened(), settled()])
    query = Query(datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC), ("day",), ZoneInfo("Europe/Berlin"))
    assert by_group(report_of(where, query), "day") == {"2026-11-15": 1}
    empty = report_of(where, replace(query, about=About(tenant="nobody")))
    assert (empty.lines, empty.adjustments, empty.payable_pico()) == ((), (), {})
    render_table(empty)


async def test_all_of_a_report_is_of_one_moment(where: Where) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened("1"))
        with one_view(where) as connection:
            count = "SELECT count(*) FROM requests"
            assert connection.exec_driver_sql(count).scalar_one() == 1
            await ledger.open(opened("2"))
            assert connection.exec_driver_sql(count).scalar_one() == 1


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


async def test_a_statement_past_the_deadline_is_ended(where: Where) -> None:
    await write(where, book(), [])
    times = iter([0.0])
    with pytest.raises(ReportTooSlow), one_view(where, 0.05, lambda: next(times, 2.0)) as connection:
        connection.exec_driver_sql(ENDLESS)
    with pytest.raises(LedgerUnavailable), one_view(where, 1.0, lambda: 0.0) as connection:
        connection.exec_driver_sql("SELECT * FROM nothing")


def test_a_place_is_shown_without_its_password(tmp_path: Path) -> None:
    assert place_of("postgresql://me:secret@db/ledger") == "postgresql://me:***@db/ledger"
    assert place_of(tmp_path / "l.db") == str(tmp_path / "l.db")
