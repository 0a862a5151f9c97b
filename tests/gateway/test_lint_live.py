"""What traffic shows, as `prefixgate lint` prints it: asked of a running gateway, and out of its ledger."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from backends.reference.embedded import RunningEngine
from gateway.admin_client import Asked
from gateway.cli import cli
from gateway.commands.linting.forms import LintFormat, Shown
from gateway.commands.linting.live import ledger_page, lines, live_page, show_page
from prefix_index.lint import Level
from tests.gateway.conftest import MODEL, StartGateway, settled
from tests.gateway.divergence.test_pages import ask, begin, dated

NOW = datetime.now(UTC)
FIELDS = ("rule", "tenant", "model", "route", "place", "cause", "requests", "lost_tokens", "fix", "safety")
ROW: dict[str, Any] = {
    "rule": "time-before-fixed",
    "level": "warning",
    "what": "The time stands before fixed text",
    "why": "So.",
    "fix": "Move it.",
    "safety": "consent",
    "tenant": "acme",
    "model": "m",
    "route": "/v1/chat/completions",
    "place": "system",
    "cause": "time",
    "causes": {"time": 3},
    "first_token": 0,
    "last_token": 16,
    "first_character": 18,
    "last_character": 18,
    "variants": 7,
    "requests": 6,
    "of_requests": 7,
    "lost_tokens": 2400,
    "lost_tokens_a_day": 57600,
    "money_a_day": "0.115200000000",
    "currency": "USD",
    "first_seen": "2026-11-30T12:00:00+00:00",
    "last_seen": "2026-11-30T12:09:00+00:00",
}
PAGE: dict[str, Any] = {"as_of": "2026-11-30T12:10:00+00:00", "requests": 9, "kinds_of_calls": 1, "findings": [ROW]}


def priced(folder: Path) -> Path:
    """A configuration whose price book has a price of the model."""
    price = {"model": MODEL, "input_per_mtok": 3, "cached_input_ratio": 0.1, "output_per_mtok": 9, "from": "2026-01-01"}
    book, config = folder / "prices.yaml", folder / "priced.yaml"
    book.write_text(json.dumps({"currency": "USD", "prices": [price]}))
    config.write_text(json.dumps({"prices_file": str(book)}))
    return config


async def test_a_running_gateway_and_its_ledger_give_the_same_findings(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    gateway = await begin(start_gateway, engine, token_file)
    for second in range(8):
        await ask(client, gateway, dated(second), f"And how is case {second} handled?")
    await settled(gateway, 8)
    live = await asyncio.to_thread(live_page, Asked(gateway.url, "letmein"))
    start, end = NOW - timedelta(days=1), NOW + timedelta(days=1)
    kept = await asyncio.to_thread(ledger_page, gateway.ledger_path, None, start, end)
    [one], [other] = live["findings"], kept["findings"]
    assert {name: one[name] for name in FIELDS} == {name: other[name] for name in FIELDS}
    assert (one["model"], one["rule"], one["requests"]) == (MODEL, "time-before-fixed", 7)
    options = ["lint", "--json", "--fail-on", "warning"]
    asked = [*options, "--live", "--gateway", gateway.url, "--token-file", str(token_file)]
    period = ["--from", f"{start:%Y-%m-%d}", "--to", f"{end:%Y-%m-%d}"]
    read = [*options, "--from-ledger", "--ledger", str(gateway.ledger_path), *period]
    for command, currency in ((asked, None), (read, None), ([*read, "-c", str(priced(tmp_path))], "USD")):
        result = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert result.exit_code == 1, result.output
        [found] = json.loads(result.output)["findings"]
        assert (found["rule"], found["currency"]) == ("time-before-fixed", currency)
    assert kept["misses"] == [
        {"reason": "cold", "requests": 1, "lost_tokens": 0},
        {"reason": "prompt_changed", "requests": 7, "lost_tokens": one["lost_tokens"]},
    ]


def test_findings_are_printed_with_place_cost_and_fix() -> None:
    text = "\n".join(lines(PAGE, 10, 200))
    assert "acme, m, /v1/chat/completions: system, character 18, token 0 to 16" in text
    assert "6 of 7 requests changed there, 7 system prompts in all, and lost 2,400 tokens, 400 each." in text
    assert "a day: 57,600 tokens, 0.12 USD" in text
    assert "fix (consent): Move it." in text
    assert text.endswith("1 finding in 9 requests seen live")
    assert "and 1 more" in "\n".join(lines({**PAGE, "findings": [ROW, ROW]}, 1, 80))
    assert max(len(line) for line in lines(PAGE, 10, 60) if line.startswith(" ")) <= 60


def test_misses_of_a_ledger_are_printed_too() -> None:
    misses = [
        {"reason": "evicted", "requests": 2, "lost_tokens": 640},
        {"reason": "cold", "requests": 1, "lost_tokens": 0},
    ]
    page = {"from": "2026-11-01T00:00:00+00:00", "to": "2026-12-01T00:00:00+00:00", "findings": [], "misses": misses}
    assert list(lines(page, 10, 200)) == [
        "missed, evicted: 2 requests, 640 tokens lost",
        "missed, cold: 1 request",
        "0 findings in 2026-11-01T00:00:00+00:00 to 2026-12-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("fail_on", "page", "code"),
    [
        (Level.WARNING, PAGE, 1),
        (Level.ERROR, PAGE, 0),
        (None, PAGE, 0),
        (Level.NOTE, {**PAGE, "findings": []}, 0),
    ],
)
def test_a_run_ends_by_the_level_of_what_is_found(fail_on: Level | None, page: dict[str, Any], code: int) -> None:
    assert show_page(page, Shown(LintFormat.TABLE, 100, fail_on)) == code


def test_json_is_the_page_and_sarif_names_the_kind_of_call(capsys: pytest.CaptureFixture[str]) -> None:
    show_page(PAGE, Shown(LintFormat.JSON))
    assert json.loads(capsys.readouterr().out) == PAGE
    changed = {**ROW, "rule": "history-changed", "cause": None, "first_character": None}
    show_page({**PAGE, "findings": [ROW, changed]}, Shown(LintFormat.SARIF))
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["time-before-fixed", "history-changed"]
    assert "acme/m/v1/chat/completions" in json.dumps(run["results"][0]["locations"])
