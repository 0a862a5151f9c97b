"""The acceptance scenarios of billing, by their letters. Limits, budgets and tool order are tested elsewhere."""

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from billing import (
    OpenedRequest,
    PriceBook,
    Settlement,
    SettlementState,
    Tally,
    Usage,
    UsageFlag,
    UsageMerger,
    open_ledger,
    parse_when,
    report,
)
from billing.money import joined_pico
from tests.billing.conftest import Rows
from tests.billing.samples import NOON, attempt, book, opened, price, settled

DOLLAR = book(price("1", "0.1", "10"))
INPUT, CACHED, OUTPUT = 1_000_000, 100_000, 10_000_000
"""Pico-dollars a token."""


class Bills:
    """Runs usage through the ledger and gives back what was written."""

    def __init__(self, path: Path, rows: Rows) -> None:
        self._path = path
        self._rows = rows

    async def write(self, *records: OpenedRequest | Settlement, prices: PriceBook = DOLLAR) -> None:
        async with open_ledger(self._path, prices) as ledger:
            await asyncio.gather(
                *(ledger.open(each) if isinstance(each, OpenedRequest) else ledger.settle(each) for each in records)
            )

    async def of_reports(self, *raw: dict[str, object]) -> tuple[int | None, set[str]]:
        """Charge and flags of one answer that reported `raw`."""
        merger = UsageMerger()
        for each in raw:
            merger.add(each)
        found = merger.result()
        await self.write(opened(), settled(usage=found.usage, flags=found.flags, usage_json=found.raw_json))
        return self.only()

    def only(self) -> tuple[int | None, set[str]]:
        (row,) = self._rows("settlements")
        units = row["charged_units"]
        charged = None if units is None else joined_pico(units, row["charged_pico"])
        return charged, set(row["flags"].split(",")) - {""}

    def total(self) -> Tally:
        found = report(self._path, NOON - timedelta(days=60), NOON + timedelta(days=60))
        (total,) = found.totals.values()
        return total


@pytest.fixture
def bills(ledger_path: Path, rows: Rows) -> Bills:
    return Bills(ledger_path, rows)


OPENAI: dict[str, object] = {
    "prompt_tokens": 10_000,
    "completion_tokens": 0,
    "total_tokens": 10_000,
    "prompt_tokens_details": {"cached_tokens": 9_984},
}


async def test_a_cached_tokens_inside_the_prompt_are_billed_once(bills: Bills) -> None:
    assert await bills.of_reports(OPENAI) == (16 * INPUT + 9_984 * CACHED, set())


async def test_b_cached_tokens_outside_the_prompt_give_the_same_money(bills: Bills) -> None:
    charged, flags = await bills.of_reports(
        {"input_tokens": 16, "cache_read_input_tokens": 9_984, "cache_creation_input_tokens": 0, "output_tokens": 0}
    )
    assert (charged, flags) == (16 * INPUT + 9_984 * CACHED, set())


async def test_c_hit_and_miss_that_do_not_add_up_are_flagged(bills: Bills) -> None:
    charged, flags = await bills.of_reports(
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 0,
            "prompt_cache_hit_tokens": 800,
            "prompt_cache_miss_tokens": 100,
        }
    )
    assert (charged, flags) == (100 * INPUT + 800 * CACHED, {"clamped"})


async def test_d_null_cached_is_billed_in_full_and_shown_as_unreported(bills: Bills) -> None:
    charged, flags = await bills.of_reports(OPENAI | {"prompt_tokens_details": None})
    assert (charged, flags) == (10_000 * INPUT, {"unreported"})
    assert bills.total().hit_share is None


async def test_e_a_stream_cut_after_k_chunks_pays_the_last_cumulative_usage(bills: Bills) -> None:
    merger = UsageMerger()
    for k in range(1, 8):
        merger.add({"prompt_tokens": 100, "completion_tokens": k, "prompt_tokens_details": {"cached_tokens": 96}})
    await bills.write(opened(), settled(usage=merger.result().usage, state=SettlementState.PARTIAL))
    assert bills.only() == (4 * INPUT + 96 * CACHED + 7 * OUTPUT, set())


async def test_f_hanging_up_before_the_first_token_pays_the_prompt(bills: Bills) -> None:
    counted = Usage(prompt_tokens=100, cached_tokens=None, output_tokens=0)
    await bills.write(opened(), settled(usage=counted, state=SettlementState.PARTIAL, flags={UsageFlag.ESTIMATED}))
    assert bills.only() == (100 * INPUT, {"estimated", "unreported"})


async def test_g_a_failed_attempt_before_a_good_one_makes_one_billable_row(bills: Bills, rows: Rows) -> None:
    attempts = (attempt(outcome="status_500", status=500), attempt(ordinal=1))
    await bills.write(opened(), settled(usage=Usage(100, 0, 1), attempts=attempts))
    assert bills.only() == (100 * INPUT + OUTPUT, set())
    assert len(rows("attempts")) == 2
    assert bills.total().requests == 1


async def test_h_two_usage_chunks_are_not_summed(bills: Bills) -> None:
    assert await bills.of_reports(OPENAI, OPENAI) == (16 * INPUT + 9_984 * CACHED, set())


@pytest.mark.parametrize("provider_id", ["chatcmpl-1", None])
async def test_i_one_provider_id_twice_or_none_makes_two_rows(
    bills: Bills, rows: Rows, provider_id: str | None
) -> None:
    evidence = b'{"id":null}' if provider_id is None else b'{"id":"chatcmpl-1"}'
    await bills.write(opened("1"), opened("2"), settled("1", usage_json=evidence), settled("2", usage_json=evidence))
    assert len(rows("settlements")) == 2


async def test_j_what_a_client_calls_its_request_does_not_matter(bills: Bills, rows: Rows) -> None:
    """Ids are the gateway's: two requests of a client are two ids, whatever it sent in its headers."""
    await bills.write(opened("1"), opened("2"), settled("1"), settled("2"))
    assert {row["request_id"] for row in rows("settlements")} == {"1", "2"}


async def test_l_an_orderly_end_under_load_loses_nothing(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, DOLLAR) as ledger:
        for n in range(2_000):
            ledger.open(opened(f"{n}"))
            ledger.settle(settled(f"{n}"))
    assert len(rows("requests")) == len(rows("settlements")) == 2_000


async def test_n_a_model_without_a_price_is_listed_and_not_free(bills: Bills) -> None:
    await bills.write(opened(model="new"), settled())
    assert bills.only() == (None, {"unpriced"})
    total = bills.total()
    assert total.charged_pico is None
    assert total.flags[UsageFlag.UNPRICED] == 1


async def test_o_a_price_that_changes_in_mid_stream_does_not_change_the_bill(bills: Bills) -> None:
    midnight = datetime(2026, 11, 16, tzinfo=UTC)
    prices = book(
        price("1", "0.1", "10", id_="old", valid_to=midnight), price("5", "0.5", "50", id_="new", valid_from=midnight)
    )
    start = midnight - timedelta(seconds=1)
    await bills.write(
        opened(at=start), settled(usage=Usage(10, 0, 1), at=midnight + timedelta(seconds=9)), prices=prices
    )
    assert bills.only() == (10 * INPUT + OUTPUT, set())


async def test_p_days_of_any_zone_add_up_to_their_month(bills: Bills, ledger_path: Path) -> None:
    hours = [parse_when("2026-10-31T12:15") + timedelta(hours=n) for n in range(0, 32 * 24, 5)]
    records: list[OpenedRequest | Settlement] = []
    for n, hour in enumerate(hours):
        records += [opened(f"{n}", at=hour), settled(f"{n}", Usage(n, 0, 0))]
    await bills.write(*records)

    def charged(bounds: Sequence[datetime]) -> list[int]:
        found = [report(ledger_path, a, b).totals for a, b in pairwise(bounds)]
        return [totals["USD"].charged_pico or 0 if "USD" in totals else 0 for totals in found]

    kolkata = [parse_when(f"2026-11-{day:02d}T00:00+05:30") for day in range(1, 31)] + [
        parse_when("2026-12-01T00:00+05:30")
    ]
    new_york = [parse_when("2026-11-01T00:00-04:00")]  # this day has 25 hours
    new_york += [parse_when(f"2026-11-{day:02d}T00:00-05:00") for day in range(2, 31)]
    new_york += [parse_when("2026-12-01T00:00-05:00")]
    for days in (kolkata, new_york):
        (month,) = charged([days[0], days[-1]])
        assert sum(charged(days)) == month
        assert month == sum(n for n, hour in enumerate(hours) if days[0] <= hour < days[-1]) * INPUT


async def test_q_a_bill_of_the_past_does_not_move_with_the_prices(bills: Bills, ledger_path: Path) -> None:
    await bills.write(opened(), settled())
    before = bills.total()
    await bills.write(prices=book(price("99", None, "99", id_="edited")))
    assert bills.total() == before


async def test_t_all_but_one_token_cached_on_a_cold_endpoint_is_disputed(bills: Bills) -> None:
    await bills.write(opened(), settled(usage=Usage(1_000, 999, 1), expected_cached_tokens=0))
    assert bills.only() == (INPUT + 999 * CACHED + OUTPUT, {"disputed"})
    assert bills.total().flags[UsageFlag.DISPUTED] == 1


@pytest.mark.parametrize("expected", [None, 500, 992])
async def test_t_a_full_hit_that_was_expected_is_not_disputed(bills: Bills, expected: int | None) -> None:
    await bills.write(opened(), settled(usage=Usage(1_000, 999, 1), expected_cached_tokens=expected))
    assert bills.only()[1] == set()


@pytest.mark.parametrize("usage", [Usage(1_000, 0, 1), Usage(None, 5, 1), Usage(1_000, 900, 1)])
async def test_t_other_counts_are_not_disputed(bills: Bills, usage: Usage) -> None:
    await bills.write(opened(), settled(usage=usage, expected_cached_tokens=0))
    assert "disputed" not in bills.only()[1]


async def test_u_the_ledger_adds_up_to_what_an_engine_computed(bills: Bills) -> None:
    truth = [Usage(1_000 + n, 16 * n, n) for n in range(60)]
    records: list[OpenedRequest | Settlement] = []
    for n, usage in enumerate(truth):
        records += [opened(f"{n}"), settled(f"{n}", usage)]
    await bills.write(*records)
    total = bills.total()
    assert total.prompt_tokens == sum(usage.prompt_tokens or 0 for usage in truth)
    assert total.cached_tokens == sum(usage.cached_tokens or 0 for usage in truth)
    assert total.output_tokens == sum(usage.output_tokens or 0 for usage in truth)


@pytest.mark.parametrize(
    ("raw", "charged", "flags"),
    [
        ({"prompt_tokens": -100, "completion_tokens": 1}, OUTPUT, {"clamped", "unreported"}),
        ({"prompt_tokens": 100, "completion_tokens": -1}, 100 * INPUT, {"clamped", "unreported"}),
        ({"prompt_tokens": math.nan, "completion_tokens": 1}, OUTPUT, {"invalid", "unreported", "incomplete"}),
        ({"prompt_tokens": 100, "completion_tokens": math.nan}, 100 * INPUT, {"invalid", "unreported", "incomplete"}),
        ({"prompt_tokens": 10**30, "completion_tokens": 1.5}, None, {"invalid", "unreported", "incomplete"}),
    ],
)
async def test_z_negative_or_impossible_usage_is_clamped_and_flagged(
    bills: Bills, raw: dict[str, object], charged: int | None, flags: set[str]
) -> None:
    assert await bills.of_reports(raw) == (charged, flags)
