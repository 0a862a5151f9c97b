"""What an engine computed is what the ledger has, what reports add up and what is payable: under any shapes of usage,
cuts, retries, price changes and corrections; and the same again when the same is written once more."""

import asyncio
import random
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from billing import (
    Correction,
    CorrectionKind,
    OpenedRequest,
    Price,
    PriceBook,
    Settlement,
    SettlementState,
    UsageMerger,
    open_ledger,
)
from billing.money import joined_pico
from billing.reports.query import Query, Source
from billing.reports.report import report_of
from tests.billing.samples import NOON, attempt, book, opened, price, settled

DAY = timedelta(days=1)
TENANTS = ("acme", "globex", "Ωmega")


@dataclass(frozen=True, slots=True)
class Truth:
    """What an engine computed for one request, in disjoint heaps."""

    fresh: int
    cached: int
    written: int
    output: int

    @property
    def prompt(self) -> int:
        return self.fresh + self.cached + self.written


def openai(truth: Truth, output: int) -> dict[str, object]:
    details = {"cached_tokens": truth.cached, "cache_write_tokens": truth.written}
    return {
        "prompt_tokens": truth.prompt,
        "completion_tokens": output,
        "total_tokens": truth.prompt + output,
        "prompt_tokens_details": details,
    }


def vllm(truth: Truth, output: int) -> dict[str, object]:
    details = {"cached_tokens": truth.cached, "created_cache_tokens": truth.written, "multimodal_tokens": None}
    return {"prompt_tokens": truth.prompt, "completion_tokens": output, "prompt_tokens_details": details}


def responses(truth: Truth, output: int) -> dict[str, object]:
    details = {"cached_tokens": truth.cached, "cache_write_tokens": truth.written}
    return {"input_tokens": truth.prompt, "output_tokens": output, "input_tokens_details": details}


def anthropic(truth: Truth, output: int) -> dict[str, object]:
    return {
        "input_tokens": truth.fresh,
        "cache_read_input_tokens": truth.cached,
        "cache_creation_input_tokens": truth.written,
        "output_tokens": output,
    }


def deepseek(truth: Truth, output: int) -> dict[str, object]:
    return {
        "prompt_tokens": truth.prompt,
        "completion_tokens": output,
        "prompt_cache_hit_tokens": truth.cached,
        "prompt_cache_miss_tokens": truth.prompt - truth.cached,
        "prompt_tokens_details": {"cache_write_tokens": truth.written},
    }


SHAPES: tuple[Callable[[Truth, int], dict[str, object]], ...] = (openai, vllm, responses, anthropic, deepseek)


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its truth, how it is told, when it came, how it went."""

    truth: Truth
    shape: int
    told: str
    """`last`, `every` chunk, in `two` chunks, or `twice` the same."""
    cut_after: int | None
    failed_before: int
    tenant: int
    day: int
    corrected: int

    @property
    def output(self) -> int:
        """What was computed of the answer until it was cut: cumulative usage tells it."""
        return self.truth.output if self.cut_after is None else min(self.cut_after, self.truth.output)

    def reports(self) -> list[dict[str, object]]:
        shape, output = SHAPES[self.shape], self.output
        whole = shape(self.truth, output)
        match self.told:
            case "every":
                return [shape(self.truth, k) for k in sorted({0, 1 % (output + 1), output // 2, output})]
            case "two":
                names = sorted(whole)
                return [{name: whole[name] for name in names[:2]}, whole]
            case "twice":
                return [whole, whole]
            case _:
                return [whole]


HEAP = st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 200_000))
CALLS = st.builds(
    Call,
    truth=st.builds(Truth, fresh=HEAP, cached=HEAP, written=HEAP, output=st.integers(0, 4_000)),
    shape=st.integers(0, len(SHAPES) - 1),
    told=st.sampled_from(["last", "every", "two", "twice"]),
    cut_after=st.none() | st.integers(0, 4_000),
    failed_before=st.integers(0, 2),
    tenant=st.integers(0, len(TENANTS) - 1),
    day=st.integers(0, 9),
    corrected=st.sampled_from([0, 0, 0, -7, 12_345, -(10**13)]),
)
RATES = st.tuples(*[st.sampled_from(["0", "0.0028", "0.5", "3", "75"])] * 3)


def prices_of(rates: Sequence[tuple[str, str, str]]) -> PriceBook:
    """A price for each three days, one after the other."""
    changes = [NOON + 3 * n * DAY for n in range(1, len(rates))]
    bounds: list[datetime | None] = [None, *changes, None]
    made: list[Price] = []
    for n, (input_, cached, output) in enumerate(rates):
        one = price(input_, cached, output, id_=f"p{n}", valid_to=bounds[n + 1])
        start = bounds[n]
        made.append(one if start is None else replace(one, valid_from=start))
    return book(*made)


def records(calls: Sequence[Call]) -> list[OpenedRequest | Settlement | Correction]:
    made: list[OpenedRequest | Settlement | Correction] = []
    for n, call in enumerate(calls):
        name, at = f"r{n}", NOON + call.day * DAY
        merger = UsageMerger()
        for raw in call.reports():
            merger.add(raw)
        found = merger.result()
        failed = [attempt(name, k, "status_500", 500) for k in range(call.failed_before)]
        settlement = settled(
            name,
            found.usage,
            state=SettlementState.COMPLETE if call.cut_after is None else SettlementState.PARTIAL,
            at=at + timedelta(seconds=5),
            flags=found.flags,
            attempts=(*failed, attempt(name, call.failed_before)),
            usage_json=found.raw_json,
        )
        made += [opened(name, at=at, tenant=TENANTS[call.tenant]), settlement]
        if call.corrected:
            made.append(_correction(name, call, at))
    return made


def _correction(name: str, call: Call, at: datetime) -> Correction:
    return Correction(
        correction_id=f"c-{name}",
        made_at=at,
        request_id=name,
        tenant_id=TENANTS[call.tenant],
        key_id=None,
        model="llama",
        kind=CorrectionKind.ADJUSTMENT,
        reason="as agreed",
        currency="USD",
        full_pico=0,
        charged_pico=call.corrected,
    )


async def write(path: Path, prices: PriceBook, given: Sequence[OpenedRequest | Settlement | Correction]) -> None:
    async with open_ledger(path, prices) as ledger:
        for one in given:
            match one:
                case OpenedRequest():
                    ledger.open(one)
                case Settlement():
                    ledger.settle(one)
                case Correction():
                    ledger.correct(one)


def table(path: Path, name: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY request_id")]


def owed_pico(call: Call, prices: PriceBook) -> int:
    """Worked out from the truth alone."""
    at = prices.price_at("llama", NOON + call.day * DAY)
    assert at is not None
    truth, cached = call.truth, at.cached_input_pico
    assert cached is not None
    fresh = truth.fresh + truth.written
    return fresh * at.input_pico + truth.cached * cached + call.output * at.output_pico


@settings(max_examples=30, deadline=None)
@given(
    st.lists(CALLS, min_size=1, max_size=25), st.lists(RATES, min_size=1, max_size=3), st.randoms(use_true_random=False)
)
def test_rows_reports_and_what_is_payable_are_what_the_engine_computed(
    calls: list[Call], rates: list[tuple[str, str, str]], rng: random.Random
) -> None:
    prices, given_ = prices_of(rates), records(calls)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "first.db", Path(folder) / "second.db"
        asyncio.run(write(first, prices, given_))
        rows = {row["request_id"]: row for row in table(first, "settlements")}
        for n, call in enumerate(calls):
            row = rows[f"r{n}"]
            heaps = (row["prompt_tokens"], row["cached_tokens"], row["cache_write_tokens"], row["output_tokens"])
            assert heaps == (call.truth.prompt, call.truth.cached, call.truth.written, call.output)
            charged = joined_pico(row["charged_units"], row["charged_pico"])
            assert charged == owed_pico(call, prices) >= 0
        for source in Source:
            found = report_of(first, Query(NOON - DAY, NOON + 30 * DAY, source=source))
            (total,) = found.totals.values()
            assert total.requests == len(calls)
            assert total.prompt_tokens == sum(call.truth.prompt for call in calls)
            assert total.cached_tokens == sum(call.truth.cached for call in calls)
            assert total.output_tokens == sum(call.output for call in calls)
            owed = sum(owed_pico(call, prices) for call in calls)
            assert total.charged_pico == owed == sum(line.tally.charged_pico or 0 for line in found.lines)
            assert found.payable_pico() == {"USD": owed + sum(call.corrected for call in calls)}
        asyncio.run(write(second, prices, given_))
        asyncio.run(write(second, prices, rng.sample(given_, len(given_))))  # once more, in any order: nothing changes
        assert table(second, "settlements") == table(first, "settlements")
        assert table(second, "corrections") == table(first, "corrections")
