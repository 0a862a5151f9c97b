from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from billing import PriceBook
from gateway.demo.gateway_process import PRICE
from gateway.demo.types import BillLine, DemoOutcome, EngineCounters, Policy, RunResult, WorkingSet
from tests.billing.invoicing.office import write
from tests.billing.samples import opened, settled

BEGAN_AT = datetime(2025, 6, 30, 14, 58, tzinfo=UTC)
"""Two minutes before July begins in Tokyo."""
ENDED_AT = BEGAN_AT + timedelta(seconds=90)


def line(tenant: str, requests: int, full: str, charged: str, saved: str) -> BillLine:
    return BillLine(tenant, requests, 1000 * requests, 400 * requests, 10 * requests, full, charged, saved, "USD")


@pytest.fixture
def outcome() -> DemoOutcome:
    """Figures of a demo that went well."""
    in_turn = RunResult(
        policy=Policy.ROUND_ROBIN,
        requests=55,
        requests_by_engine={"engine-0": 28, "engine-1": 27},
        engines=EngineCounters(44_506, 22_656, 152.04),
        ledger_cached_tokens=22_656,
        ttft_p50_s=2.29,
        ttft_p90_s=17.22,
        wall_s=108.94,
        began_at=BEGAN_AT,
        ended_at=ENDED_AT,
    )
    prefix = replace(
        in_turn,
        policy=Policy.PREFIX,
        engines=EngineCounters(44_506, 34_386, 96.2),
        ledger_cached_tokens=34_386,
        ttft_p50_s=1.08,
        ttft_p90_s=6.47,
        wall_s=79.3,
    )
    return DemoOutcome(
        seed=1,
        model="smollm2",
        concurrency=3,
        working_set=WorkingSet(blocks=606, block_size=16, prompt_tokens=44_506, longest_prompt_tokens=1200),
        kv_blocks=364,
        runs=(in_turn, prefix),
        bill=(
            line("acme", 30, "0.044703000000", "0.015715800000", "0.028987200000"),
            line("cedar", 25, "10.055722000000", "10.000000000000", "0.055722000000"),
        ),
        ledger=Path("nowhere.db"),
        total=line("total", 55, "10.100425000000", "10.015715800000", "0.084709200000"),
    )


@pytest.fixture
def served(outcome: DemoOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoOutcome:
    """The same with a ledger of twelve requests of acme and one of cedar; temporary files are in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = tmp_path / "home"
    home.mkdir()
    prices = home / "prices.yaml"
    prices.write_text(yaml.safe_dump({"currency": "USD", "prices": [{"model": "smollm2", **PRICE}]}))
    tenants = {f"r{number}": "acme" for number in range(12)} | {"r12": "cedar"}
    records = [
        record
        for name, tenant in tenants.items()
        for record in (
            opened(name, at=BEGAN_AT, tenant=tenant, model="smollm2"),
            settled(name, at=BEGAN_AT + timedelta(seconds=2)),
        )
    ]
    write(home / "ledger.db", PriceBook.load(prices), *records)
    return replace(outcome, ledger=home / "ledger.db")
