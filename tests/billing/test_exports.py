"""What leaves the ledger row by row: rows, Parquet, CloudEvents and Lago's events."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pyarrow import parquet

from billing import About, Query, ReportInvalid, Settlement, SettlementState, Usage, UsageFlag, report_of
from billing.reports.columns import columns_of, kinds_of, lines_of
from billing.reports.csv_text import csv_lines, csv_text, no_formula
from billing.reports.events import LAGO_TOKENS, cloud_events, lago_events
from billing.reports.parquet import write_parquet
from billing.reports.reading import one_view
from billing.reports.rows import KINDS, NUMBERS, Cursor, cursor_of, usage_columns, usage_rows
from billing.types import Correction, CorrectionKind, Verdict
from tests.billing.conftest import Where
from tests.billing.samples import NOON, book, opened, price, settled
from tests.billing.test_report_splits import Record, credit, write

PICO = 10**12
BERLIN = ZoneInfo("Europe/Berlin")
PERIOD = Query(NOON - timedelta(days=20), NOON + timedelta(days=40), (), BERLIN)
PRICES = book(
    price("1.25", "0.125", "10", "1.5", valid_to=NOON + timedelta(hours=1)),
    price("2.5", "0.25", "20", id_="p2", valid_from=NOON + timedelta(hours=1)),
    price("3", None, "7", model="=cmd", id_="p3"),
)


def mixed() -> list[Record]:
    """Every kind of row: all states, two prices of a model within an hour, unknown counts, tags, corrections."""
    usages = [Usage(1000, 900, 100, 50), Usage(1000, None, 100), Usage(None, 300, None, 20), Usage(0, 0, 0), None]
    records: list[Record] = [opened("open")]
    for n, usage in enumerate(usages * 4):
        at = NOON + timedelta(minutes=17 * n)
        state = SettlementState.PARTIAL if n % 3 == 1 else SettlementState.COMPLETE
        flags = {UsageFlag.ESTIMATED} if n % 3 == 1 else set()
        request = opened(
            f"r{n:02d}", at=at, tenant="acme" if n % 2 else "bolt", model="=cmd" if n % 7 == 6 else "llama"
        )
        records.append(
            structs.replace(request, key_id=f"k{n % 3}", tags={"team": "=SUM(1)", "env": "p"} if n % 4 else None)
        )
        done = settled(f"r{n:02d}", usage, state=state, flags=flags, usage_json=b'{"x": 1}')
        records.append(structs.replace(done, verdict=Verdict.VERIFIED, prefill_s=0.25, decode_s=1.5))
    for n, state in enumerate((SettlementState.FAILED, SettlementState.REJECTED, SettlementState.INTERRUPTED)):
        records += [opened(f"s{n}"), settled(f"s{n}", Usage(10, 0, 1), state=state)]
    records += [opened("u", model="unpriced"), settled("u")]
    records.append(credit("c1", -123, request_id="r01", reason="=HYPERLINK(1)"))
    records.append(credit("c2", 77, kind=CorrectionKind.CORRECTION, model="llama", key_id="k1", full_pico=77))
    records.append(credit("c3", 5, kind=CorrectionKind.ADJUSTMENT, at=NOON + timedelta(days=20)))
    return records


def charged(where: Where, query: Query) -> int:
    return report_of(where, query).payable_pico()["USD"]


def rows_of(where: Where, query: Query, *, internal: bool = False) -> list[dict[str, Any]]:
    with one_view(where) as connection:
        return [row for _, row in usage_rows(connection, query, internal=internal)]


def by_hand(row: Mapping[str, Any]) -> Decimal:
    """The amount of a row, from nothing but its columns."""
    if row["line"] != "usage":
        return Decimal(row["amount_charged"])
    if row["state"] not in ("complete", "partial") or row["amount_charged"] is None:
        return Decimal(0)
    written, discounted = row["cache_write_tokens"] or 0, row["discounted_tokens"] or 0
    prompt = (row["cached_tokens"] or 0) + written if row["prompt_tokens"] is None else row["prompt_tokens"]
    input_ = Decimal(row["input_per_mtok"])
    pico = (prompt - discounted - written) * input_
    pico += discounted * Decimal(row["cached_input_per_mtok"] or input_)
    pico += written * Decimal(row["cache_write_per_mtok"] or input_)
    return (pico + (row["output_tokens"] or 0) * Decimal(row["output_per_mtok"])) / 10**6


async def test_a_tenant_recomputes_its_bill_from_the_rows(where: Where) -> None:
    await write(where, PRICES, mixed())
    for tenant in ("acme", "bolt"):
        query = replace(PERIOD, about=About(tenant=tenant))
        rows = rows_of(where, query)
        assert {row["tenant"] for row in rows} == {tenant}
        for row in rows:
            assert row.get("amount_charged") is None or by_hand(row) == Decimal(row["amount_charged"]), row
        assert sum(by_hand(row) for row in rows) * PICO == charged(where, query)


async def test_rows_are_in_order_with_what_is_in_flight_and_corrections_last(where: Where) -> None:
    await write(where, PRICES, mixed())
    rows = rows_of(where, PERIOD)
    assert len(rows) == 1 + 20 + 3 + 1 + 3
    assert [row["line"] for row in rows[-3:]] == ["credit", "correction", "adjustment"]
    assert [row["opened_at"] for row in rows[:-3]] == sorted(row["opened_at"] for row in rows[:-3])
    (waiting,) = [row for row in rows if row["id"] == "open"]
    assert (waiting["state"], waiting["settled_at"], waiting["amount_charged"]) == ("in_flight", None, None)
    assert rows[-3]["request_id"] == "r01"
    tagged = rows_of(where, replace(PERIOD, about=About(tags={"env": "p"})))
    assert {row["tags"] for row in tagged} == {'{"env":"p","team":"=SUM(1)"}'}
    assert len(rows_of(where, replace(PERIOD, about=About(key="k1", model="llama")))) < len(tagged)


async def test_seconds_and_endpoints_are_the_operators_alone(where: Where) -> None:
    await write(where, PRICES, mixed())
    inner = {"endpoint_id", "ttft_s", "duration_s", "prefill_s", "decode_s"}
    assert not inner & set(usage_columns())
    assert inner <= set(usage_columns(internal=True))
    assert not any(inner & set(row) for row in rows_of(where, PERIOD))
    assert all(inner <= set(row) for row in rows_of(where, PERIOD, internal=True) if row["line"] == "usage")


async def test_a_reading_goes_on_after_any_row_and_reads_only_what_is_asked_for(where: Where) -> None:
    await write(where, PRICES, mixed())
    with one_view(where) as connection:
        found = list(usage_rows(connection, PERIOD))
        for cursor, _ in found:
            place = [one for one, _ in found].index(cursor)
            with closing(usage_rows(connection, PERIOD, cursor_of(cursor.text()))) as again:
                assert list(islice(again, 2)) == found[place + 1 : place + 3]


@pytest.mark.parametrize("text", ["", "0", "2.1.a", "0.x.a", "0.1.", "0.-1.a", "1." + "9" * 19 + ".a", "0.²." + "a"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ReportInvalid):
        cursor_of(text)
    assert cursor_of(Cursor(True, 5, "a.b").text()) == Cursor(True, 5, "a.b")


async def test_no_cell_of_a_csv_is_run_as_a_formula(where: Where) -> None:
    await write(where, PRICES, mixed())
    text = "".join(csv_lines(usage_columns(), rows_of(where, PERIOD), NUMBERS))
    for row in csv.DictReader(io.StringIO(text)):
        for name, cell in row.items():
            assert name in NUMBERS or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), (name, cell)
    assert "'=cmd" in text
    assert "'=HYPERLINK(1)" in text
    assert "\n-0.00" not in text
    assert ",-0.000000000123," in text  # a number stays one


@given(st.text() | st.sampled_from(["＝1+1", " ＠SUM(A1)", "－1"]))
def test_what_is_made_safe_begins_harmlessly_and_loses_nothing(text: str) -> None:
    safe = no_formula(text)
    assert safe.removeprefix("'") == text or safe == text
    assert not safe.lstrip(" ").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"))
    (row,) = csv.reader(io.StringIO(csv_text(["a"], [{"a": text}]).partition("\n")[2], newline=""))
    assert row == [safe]


async def test_parquet_holds_the_rows_and_sums_exactly(where: Where, tmp_path: Path) -> None:
    await write(where, PRICES, mixed())
    rows = rows_of(where, PERIOD)
    assert write_parquet(tmp_path / "rows.parquet", usage_columns(), rows, KINDS) == len(rows)
    table = parquet.read_table(tmp_path / "rows.parquet")
    total = sum(amount for amount in table["amount_charged"].to_pylist() if amount is not None)
    assert total * PICO == charged(where, PERIOD)
    assert table["prompt_tokens"].to_pylist()[0] == rows[0]["prompt_tokens"]
    found = report_of(where, replace(PERIOD, by=("tenant", "day")))
    lines = list(lines_of(found))
    write_parquet(tmp_path / "report.parquet", columns_of(found), lines, kinds_of())
    again = parquet.read_table(tmp_path / "report.parquet").to_pylist()
    assert [one["tenant"] for one in again] == [one["tenant"] for one in lines]
    assert sum(one["amount_charged"] or 0 for one in again) * PICO == charged(where, PERIOD)


def events(where: Where, lines: Any) -> list[str]:
    with one_view(where) as connection:
        return list(lines(connection, PERIOD))


async def test_cloud_events_have_the_ids_of_the_rows_and_are_the_same_when_sent_again(where: Where) -> None:
    records = mixed()
    await write(where, PRICES, records)
    lines = events(where, cloud_events)
    assert events(where, cloud_events) == lines
    found = [json.loads(line) for line in lines]
    ended = [record.request_id for record in records if isinstance(record, Settlement)]
    made = [record.correction_id for record in records if isinstance(record, Correction)]
    assert sorted(one["id"] for one in found) == sorted([*ended, *made])
    assert all(one.keys() >= {"specversion", "id", "source", "type", "subject", "time"} for one in found)
    assert {(one["specversion"], one["source"]) for one in found} == {("1.0", "prefixgate")}
    total = sum(Decimal(one["data"].get("amount_charged", "0")) for one in found)
    assert total * PICO == charged(where, PERIOD)


async def test_what_ends_later_is_sent_later_and_the_rest_is_not_changed(where: Where) -> None:
    await write(where, PRICES, [opened("1"), settled("1"), opened("2")])
    before = events(where, cloud_events)
    await write(where, PRICES, [settled("2")])
    after = events(where, cloud_events)
    assert len(before) == 1 or "interrupted" in before[1]
    assert set(before[:1]) <= set(after)


async def test_unknown_counts_are_in_no_event(where: Where) -> None:
    await write(where, PRICES, [opened(), settled(usage=Usage(1000, None, None))])
    (event,) = map(json.loads, events(where, cloud_events))
    assert "cached_tokens" not in event["data"]
    assert "output_tokens" not in event["data"]
    assert event["data"]["billed_input_tokens"] == 1000
    assert event["data"]["flags"] == ["incomplete", "unreported"]


async def test_events_of_lago_are_one_for_each_kind_of_token_and_never_doubled(where: Where) -> None:
    await write(where, PRICES, mixed())
    lines = events(where, lago_events)
    assert events(where, lago_events) == lines
    found = [json.loads(line) for line in lines]
    ids = [one["transaction_id"] for one in found]
    assert len(set(ids)) == len(ids)
    tokens: dict[str, int] = {}
    for one in found:
        assert one.keys() == {"transaction_id", "external_subscription_id", "code", "timestamp", "properties"}
        if one["code"] == LAGO_TOKENS:
            kind = one["properties"]["kind"]
            assert one["transaction_id"].endswith(f":{kind}")
            tokens[kind] = tokens.get(kind, 0) + one["properties"]["tokens"]
    total = report_of(where, PERIOD).totals["USD"]
    assert tokens["cache_read"] == total.discounted_tokens
    assert tokens["cache_write"] == total.cache_write_tokens
    assert tokens["output"] == total.output_tokens


def secrets(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if "pg-" in line]


async def test_no_event_or_row_holds_a_key(where: Where) -> None:
    await write(where, PRICES, mixed())
    assert not secrets(events(where, cloud_events))
    assert not secrets(events(where, lago_events))
    assert not secrets(map(str, rows_of(where, PERIOD, internal=True)))
