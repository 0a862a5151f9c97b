"""The whole chain over real engines: what they report, what they count, what the ledger has, and what is given back."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from billing.verification.report import Verification, verify
from gateway.cli import cli
from tests.backends.reference.micro_model import micro_weights
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.until import until

STORY = "A caravan crosses the desert by night, and every well on its way has a keeper with a name. " * 4
CONFIG = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
PRICES = """
currency: USD
prices:
  - {model: tiny, input_per_mtok: 3, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2020-01-01}
"""
LETMEIN = {"authorization": "Bearer letmein"}


@pytest.fixture
def engines() -> Iterator[list[RunningEngine]]:
    with run_engine(CONFIG, micro_weights()) as one, run_engine(CONFIG, micro_weights()) as two:
        yield [one, two]


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return path


def body(question: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": STORY + question}], "max_tokens": 1}


def ask(url: str, *questions: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        for question in questions:
            http.post("/v1/chat/completions", json=body(question)).raise_for_status()


def start_over(start: StartGateway, engines: list[RunningEngine], **flags: object) -> RunningGateway:
    return start(*(e.url for e in engines), models={"tiny": {"tokenizer": ensure_model("tiny")}}, **flags)


def today() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - timedelta(hours=1), now + timedelta(hours=1)


def samples(path: Path) -> list[tuple[str, int, int]]:
    """Endpoint, hits and queries of each sample, in order."""
    query = "SELECT endpoint_id, hit_tokens, query_tokens FROM engine_samples ORDER BY sampled_at_us"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


async def seen(gateway: RunningGateway, **labels: str) -> float:
    return await asyncio.to_thread(gateway.metric, "prefixgate_engine_prefix_tokens_total", **labels)


def spans_end(gateway: RunningGateway) -> None:
    """An orderly end writes the last samples; the fixture that began the gateway may stop it again."""
    gateway.server.should_exit = True


async def verified_after_the_end(gateway: RunningGateway, samples_at_least: int) -> Verification:
    spans_end(gateway)
    await until(lambda: asyncio.to_thread(samples, gateway.ledger_path), lambda found: len(found) >= samples_at_least)
    return await asyncio.to_thread(verify, gateway.ledger_path, *today())


async def test_u_gateway_engine_and_ledger_count_the_same_tokens(
    engines: list[RunningEngine], start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start_over, start_gateway, engines[:1])
    await asyncio.to_thread(ask, gateway.url, "one?", "two?", "two?", "three?")
    rows = await settled(gateway, 4)
    prompt, cached = sum(row.prompt_tokens or 0 for row in rows), sum(row.cached_tokens or 0 for row in rows)
    await until(lambda: seen(gateway, kind="queries"), lambda found: found >= prompt)
    assert await seen(gateway, kind="hits") == cached > 0
    assert gateway.metric("prefixgate_tokens_total", kind="cached") == cached
    found = await verified_after_the_end(gateway, 2)
    [check] = found.endpoints
    assert found.is_sound
    assert check.coverage == 1.0
    counted, reported = check.compared
    assert (counted.cached, counted.prompt) == (reported.cached, reported.prompt) == (cached, prompt)
    assert check.verdicts == {"verified": 4}


async def test_who_asks_the_engine_past_the_gateway_shows_in_the_coverage(
    engines: list[RunningEngine], start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start_over, start_gateway, engines[:1])
    await asyncio.to_thread(ask, gateway.url, "one?")
    [row] = await settled(gateway, 1)
    await asyncio.to_thread(ask, engines[0].url, "one?", "one?", "one?")
    await until(lambda: seen(gateway, kind="queries"), lambda found: found >= 4 * (row.prompt_tokens or 0))
    found = await verified_after_the_end(gateway, 2)
    [check] = found.endpoints
    assert check.coverage == 0.25
    assert [span.status.value for span in check.spans] == ["other_clients"]
    assert found.is_sound


async def test_counters_are_kept_from_before_and_after_a_restart(start_gateway: StartGateway) -> None:
    with run_engine(CONFIG, micro_weights()) as engine:
        port = int(engine.url.rpartition(":")[2])
        gateway = await asyncio.to_thread(start_over, start_gateway, [engine])
        await asyncio.to_thread(ask, gateway.url, "one?")
        [row] = await settled(gateway, 1)
        await until(lambda: seen(gateway, kind="queries"), lambda found: found >= (row.prompt_tokens or 0))
    with run_engine(CONFIG, micro_weights(), port=port):
        found = await until(lambda: asyncio.to_thread(samples, gateway.ledger_path), lambda found: len(found) >= 3)
    assert [(queries, hits) for _, hits, queries in found[:3]] == [(0, 0), (row.prompt_tokens, 0), (0, 0)]
    checked = await asyncio.to_thread(verify, gateway.ledger_path, *today())
    assert [span.status.value for span in checked.endpoints[0].spans][:2] == ["matched", "restarted"]


def credits_of(path: Path) -> list[tuple[str, int]]:
    """Request and pico-units of each correction."""
    query = "SELECT request_id, charged_units * 1000000000000 + charged_pico FROM corrections"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


async def test_an_operator_gives_back_what_the_routing_lost_once(
    engines: list[RunningEngine], start_gateway: StartGateway, prices: Path, token_file: Path
) -> None:
    flags: dict[str, object] = {"scheduling__policy": "round_robin", "prices_file": prices}
    gateway = await asyncio.to_thread(start_over, start_gateway, engines, admin_token_file=token_file, **flags)
    await asyncio.to_thread(ask, gateway.url, "one?", "one?")
    _, second = await settled(gateway, 2)
    lost = ((second.prompt_tokens or 0) - 1) // 16 * 16
    assert credits_of(gateway.ledger_path) == []
    async with httpx.AsyncClient(base_url=gateway.url, headers=LETMEIN) as client:
        before = (await client.get("/admin/verification")).json()
        answers = [(await client.post("/admin/verification/credits")).json() for _ in range(2)]
        after = (await client.get("/admin/verification")).json()
        refused = await client.get("/admin/verification?from=yesterday")
    assert [answer["credited"] for answer in answers] == [1, 0]
    assert credits_of(gateway.ledger_path) == [(second.request_id, -lost * 2_700_000)]
    assert before["own_misses"]["tokens"] == lost
    assert Decimal(before["own_misses"]["worth"]["USD"]) == Decimal(lost * 2_700_000) / 10**12
    assert (before["own_misses"]["credited"], after["own_misses"]["credited"]) == (0, 1)
    assert refused.status_code == 400
    assert gateway.metric("prefixgate_own_miss_credits_total") == 1


async def test_where_the_configuration_says_so_it_is_given_back_by_itself(
    engines: list[RunningEngine], start_gateway: StartGateway, prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.miss_credits.MissCredits.run.__defaults__", (0.05,))
    flags: dict[str, object] = {"scheduling__policy": "round_robin", "prices_file": prices}
    gateway = await asyncio.to_thread(start_over, start_gateway, engines, billing__credit_own_misses=True, **flags)
    await asyncio.to_thread(ask, gateway.url, "one?", "one?")
    _, second = await settled(gateway, 2)
    found = await until(lambda: asyncio.to_thread(credits_of, gateway.ledger_path))
    assert [request_id for request_id, _ in found] == [second.request_id]


async def test_the_command_prints_what_the_admin_api_says(
    engines: list[RunningEngine], start_gateway: StartGateway, token_file: Path
) -> None:
    gateway = await asyncio.to_thread(start_over, start_gateway, engines[:1], admin_token_file=token_file)
    await asyncio.to_thread(ask, gateway.url, "one?", "two?")
    await settled(gateway, 2)
    start, end = (when.isoformat() for when in today())
    command = ["verify", "--from", start, "--to", end, "--ledger", str(gateway.ledger_path)]
    table = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert table.exit_code == 0, table.output
    assert "sound: nothing speaks against the engines' reports" in table.output
    assert "cold" in table.output
    printed = await asyncio.to_thread(CliRunner().invoke, cli, [*command, "--format", "json"])
    async with httpx.AsyncClient(base_url=gateway.url, headers=LETMEIN) as client:
        served = (await client.get("/admin/verification", params={"from": start, "to": end})).json()
    assert json.loads(printed.output)["endpoints"][0]["verdicts"] == served["endpoints"][0]["verdicts"]


def test_a_ledger_that_is_not_there_is_refused(tmp_path: Path) -> None:
    command = ["verify", "--from", "2026-11-01", "--to", "2026-12-01", "--ledger", str(tmp_path / "gone.db")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 2
    assert "gone.db" in result.output
