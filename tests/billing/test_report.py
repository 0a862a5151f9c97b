"""Reports: sums that are sums, unknowns that stay unknown, and three ways to write them down."""

import asyncio
import csv
import io
import json
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from billing import (
    LedgerUnavailable,
    Line,
    OpenedRequest,
    PeriodInvalid,
    PriceBook,
    Report,
    Settlement,
    SettlementState,
    Usage,
    UsageFlag,
    open_ledger,
    parse_when,
    render_csv,
    render_json,
    render_table,
    report,
)
from tests.billing.samples import LONG_AGO, book, opened, price, settled

START, END = parse_when("2026-11-01"), parse_when("2026-12-01")
PICO = 10**12


async def write(path: Path, prices: PriceBook, *records: OpenedRequest | Settlement) -> None:
    async with open_ledger(path, prices) as ledger:
        await asyncio.gather(
            *(ledger.open(record) if isinstance(record, OpenedRequest) else ledger.settle(record) for record in records)
        )


def text_of(found: Report) -> str:
    console = Console(width=240, file=io.StringIO(), record=True)
    console.print(render_table(found))
    return console.export_text()


MIXED: tuple[OpenedRequest | Settlement, ...] = (
    opened("1"),
    settled("1", Usage(1_000, 900, 100)),
    opened("2"),
    settled("2", Usage(500, None, 10)),
    opened("3"),
    settled("3", Usage(400, 0, 40), state=SettlementState.PARTIAL, flags={UsageFlag.ESTIMATED}),
    opened("4"),
    settled("4", Usage(700, 0, 7), state=SettlementState.FAILED),
    opened("5"),
    settled("5", None, state=SettlementState.REJECTED),
    opened("6"),
    opened("7", model="unpriced"),
    settled("7", Usage(100, 50, 5)),
    opened("8", tenant="=cmd", model="[red]llama"),
    settled("8", None),
)


async def test_a_period_is_summed_per_tenant_and_model(ledger_path: Path) -> None:
    await write(ledger_path, book(), *MIXED)
    found = report(ledger_path, START, END)
    by_name = {(line.tenant_id, line.model, line.currency): line.tally for line in found.lines}
    assert list(by_name) == [
        ("=cmd", "[red]llama", "USD"),
        ("acme", "llama", None),
        ("acme", "llama", "USD"),
        ("acme", "unpriced", "USD"),
    ]
    llama = by_name["acme", "llama", "USD"]
    assert {state: n for state, n in llama.states.items() if n} == {
        "complete": 2,
        "partial": 1,
        "failed": 1,
        "rejected": 1,
    }
    assert llama.requests == 5
    assert (llama.prompt_tokens, llama.cached_tokens, llama.output_tokens) == (1_900, 900, 150)
    assert llama.hit_share == 900 / 1_000  # neither the unreported nor the estimated prompt is in it
    assert {flag: n for flag, n in llama.flags.items() if n} == {UsageFlag.UNREPORTED: 1, UsageFlag.ESTIMATED: 1}
    assert llama.full_pico == 1_900 * 1_250_000 + 150 * 10_000_000
    assert llama.saved_pico == 900 * 1_125_000
    unpriced = by_name["acme", "unpriced", "USD"]
    assert (unpriced.full_pico, unpriced.charged_pico, unpriced.saved_pico) == (None, None, None)
    assert unpriced.flags[UsageFlag.UNPRICED] == 1
    assert unpriced.prompt_tokens == 100
    in_flight = by_name["acme", "llama", None]
    assert in_flight.states["in_flight"] == in_flight.requests == 1
    assert in_flight.hit_share is None
    assert found.totals["USD"].charged_pico == llama.charged_pico


async def test_a_report_of_one_tenant_holds_no_other(ledger_path: Path) -> None:
    await write(ledger_path, book(), *MIXED)
    assert {line.tenant_id for line in report(ledger_path, START, END, "acme").lines} == {"acme"}
    assert report(ledger_path, START, END, "nobody").lines == ()


async def test_the_table_shows_every_digit_and_every_unknown(ledger_path: Path) -> None:
    await write(ledger_path, book(), *MIXED)
    text = text_of(report(ledger_path, START, END))
    assert "0.003875" in text
    assert "0.0028625" in text
    assert "0.0010125" in text
    assert "unknown" in text
    assert "1 partial, 1 failed, 1 rejected, 1 unreported, 1 estimated" in text
    assert "1 in flight" in text
    assert "[red]llama" in text


async def test_the_table_shows_what_was_written_and_no_zero_where_nobody_said(ledger_path: Path) -> None:
    records = (opened("1"), settled("1", Usage(1_000, 0, 0, 896)), opened("2", tenant="bolt"), settled("2"))
    await write(ledger_path, book(), *records)
    rows = [line.split() for line in text_of(report(ledger_path, START, END)).splitlines()]
    assert [row[-5] for row in rows if row[:1] in (["acme"], ["bolt"], ["Total"])] == ["896", "–", "896"]


async def test_numbers_of_the_table_stay_whole_where_names_are_long(ledger_path: Path) -> None:
    usage = Usage(2_000_000_000, 1_500_000_000, 30_000_000)
    await write(ledger_path, book(), opened(tenant="t" * 64), settled(usage=usage))
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(render_table(report(ledger_path, START, END)))
    assert "2,000,000,000" in console.export_text()


async def test_the_csv_recomputes_to_the_totals_and_runs_no_formula(ledger_path: Path) -> None:
    await write(ledger_path, book(), *MIXED)
    found = report(ledger_path, START, END)
    lines = list(csv.DictReader(io.StringIO(render_csv(found))))
    assert lines[0]["tenant"] == "'=cmd"
    charged = sum(Decimal(line["amount_charged"]) for line in lines if line["amount_charged"])
    total = found.totals["USD"].charged_pico
    assert total is not None
    assert charged * PICO == total
    assert lines[0]["amount_charged"] == ""


async def test_the_json_holds_amounts_as_text_with_all_digits(ledger_path: Path) -> None:
    await write(ledger_path, book(), *MIXED)
    found = json.loads(render_json(report(ledger_path, START, END)))
    assert found["from"] == "2026-11-01T00:00:00+00:00"
    llama = found["lines"][2]
    assert llama["amount_charged"] == "0.002862500000"
    assert llama["requests_unreported"] == 1
    assert found["lines"][3]["amount_charged"] is None
    (total,) = [total for total in found["totals"] if total["currency"] == "USD"]
    assert total["amount_charged"] == "0.002862500000"


async def test_a_negative_saving_is_shown_as_one(ledger_path: Path) -> None:
    prices = book(price("1", "0.1", "1", write="1.25"))
    await write(ledger_path, prices, opened(), settled(usage=Usage(1_000_000, 0, 0, 1_000_000)))
    found = report(ledger_path, START, END)
    assert "-0.25" in text_of(found)
    assert json.loads(render_json(found))["totals"][0]["amount_saved"] == "-0.250000000000"


async def test_ten_billion_in_one_report(ledger_path: Path) -> None:
    """Beyond what a 64-bit column of pico-units could hold by a factor of a thousand, and exact to the last one."""
    prices = PriceBook("JPY", (price("999999999.999999", None, "0", currency="JPY"),))
    tokens = 2**31 - 1
    records: list[OpenedRequest | Settlement] = []
    for n in range(6_000):
        records += [opened(f"{n}"), settled(f"{n}", Usage(tokens, 0, 0))]
    await write(ledger_path, prices, *records)
    total = report(ledger_path, START, END).totals["JPY"]
    assert total.charged_pico == 6_000 * tokens * 999_999_999_999_999
    assert total.charged_pico > 10**10 * PICO
    assert total.charged_pico % PICO != 0


async def test_a_report_does_not_wait_for_a_gateway_nor_it_for_the_report(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("1"))
        with closing(sqlite3.connect(ledger_path)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM requests").fetchone() == (1,)
            await ledger.settle(settled("1"))
            assert reader.execute("SELECT count(*) FROM settlements").fetchone() == (0,)
        found = await asyncio.to_thread(report, ledger_path, START, END)
        assert found.totals["USD"].states["complete"] == 1


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="there is no ledger"):
        report(tmp_path / "absent.db", START, END)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_ledger_cannot_be_read(ledger_path: Path) -> None:
    ledger_path.write_bytes(b"certainly no database" * 100)
    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        report(ledger_path, START, END)


@pytest.mark.parametrize(
    ("start", "end"),
    [(END, START), (START, START), (START.replace(tzinfo=None), END), (START, END.replace(tzinfo=None))],
)
def test_a_period_needs_two_ends_in_order_with_zones(ledger_path: Path, start: datetime, end: datetime) -> None:
    with pytest.raises(PeriodInvalid):
        report(ledger_path, start, end)


usages = st.builds(
    lambda prompt, share, write, output: Usage(
        prompt,
        None if share is None else prompt * share // 100,
        output,
        None if write is None else min(write, prompt - prompt * (share or 0) // 100),
    ),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(0, 10**6),
)
shapes = st.tuples(
    st.sampled_from(["acme", "bolt", "cray"]),
    st.sampled_from(["llama", "qwen", "unpriced"]),
    st.sampled_from(list(SettlementState)),
    st.none() | usages,
    st.integers(0, 40 * 24 - 1),
)
PRICES = book(
    price("1.234567", "0.111111", "9.999999"),
    price("0.0028", None, "0.01", "0.0035", model="qwen", id_="q1", valid_to=LONG_AGO + timedelta(days=20)),
    price("0.0031", "0.000001", "0", model="qwen", id_="q2", valid_from=LONG_AGO + timedelta(days=20)),
)


@given(st.lists(shapes, max_size=30))
@settings(max_examples=25, deadline=None)
def test_rows_lines_and_totals_add_up_and_a_replay_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[str, str, SettlementState, Usage | None, int]],
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    records: list[OpenedRequest | Settlement] = []
    for n, (tenant, model, state, usage, hour) in enumerate(calls):
        records.append(opened(f"{n}", at=LONG_AGO + timedelta(hours=hour), tenant=tenant, model=model))
        records.append(settled(f"{n}", usage, state=state))
    asyncio.run(write(path, PRICES, *records))
    end = LONG_AGO + timedelta(days=40)
    found = report(path, LONG_AGO, end)
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM settlements").fetchall()
    charged = [row["charged_units"] * PICO + row["charged_pico"] for row in rows if row["charged_units"] is not None]
    assert all(amount >= 0 for amount in charged)
    known = [row for row in rows if row["charged_units"] is not None]
    assert [replayed(row) for row in known] == charged
    for name, expected in (("lines", found.lines), ("slices", slices(path, LONG_AGO, 8))):
        tallies = [line.tally for line in expected]
        assert sum(tally.charged_pico or 0 for tally in tallies) == sum(charged), name
        assert sum(tally.requests for tally in tallies) == len(calls), name
    total = found.totals.get("USD")
    assert (total.charged_pico or 0 if total else 0) == sum(charged)
    assert report(path, LONG_AGO, end) == found


def replayed(row: sqlite3.Row) -> int:
    """The amount of a row, computed from nothing but the row."""
    if row["state"] not in {"complete", "partial"}:
        return 0
    cached, written = row["cached_tokens"] or 0, row["cache_write_tokens"] or 0
    fresh = 0 if row["prompt_tokens"] is None else row["prompt_tokens"] - cached - written
    cached_rate = row["input_pico"] if row["cached_input_pico"] is None else row["cached_input_pico"]
    write_rate = row["input_pico"] if row["cache_write_pico"] is None else row["cache_write_pico"]
    output = (row["output_tokens"] or 0) * row["output_pico"]
    return int(fresh * row["input_pico"] + cached * cached_rate + written * write_rate + output)


def slices(path: Path, start: datetime, count: int) -> list[Line]:
    """The lines of `count` periods of five days, one after another."""
    starts = [start + number * timedelta(days=5) for number in range(count)]
    return [line for begin in starts for line in report(path, begin, begin + timedelta(days=5)).lines]
