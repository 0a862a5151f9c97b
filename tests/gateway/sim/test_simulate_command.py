"""`prefixgate simulate`: tables for people, JSON for programs, sentences for mistakes."""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from billing import KeptChain, OpenedRequest, PriceBook, Settlement, SettlementState, Usage, open_ledger
from gateway.cli import cli
from gateway.commands.simulate import Runs

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
PRICES = """
currency: USD
prices:
  - {model: m, input_per_mtok: 1, cached_input_per_mtok: 0.1, output_per_mtok: 4, from: 2026-01-01}
"""
QUICK = ("--load", "llm-d-73", "--limit-requests", "60")


def simulate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, arguments)])


def simulated(*arguments: str | Path) -> dict[str, Any]:
    result = simulate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def cells(result: Result, policy: str) -> list[str]:
    (line,) = [line for line in result.stdout.splitlines() if re.match(f"│ {re.escape(policy)} +│", line)]
    return [cell.strip() for cell in line.strip("│").split("│")]


def complaint(result: Result) -> str:
    assert result.exit_code != 0, result.output
    return result.stderr


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return path


def test_the_ceiling_is_of_the_same_requests_as_the_shares_below_it() -> None:
    asked = ("--load", "hot-prefix", "--limit-requests", "300", "--policy", "prefixgate")
    for options in (("--seeds", "3"), ("--skip-seconds", "15")):
        found = simulated(*asked, *options)
        share = found["policies"]["prefixgate"]["mean"]["hit_share"]
        assert share <= found["ceiling_hit_share"], options
    warm = simulated(*asked, "--skip-seconds", "15")["ceiling_hit_share"]
    assert warm != simulated(*asked)["ceiling_hit_share"]
    assert simulated(*asked, "--concurrency", "4", "--skip-seconds", "2")["ceiling_hit_share"] is None


def test_the_gateway_and_two_plain_policies_are_compared_below_the_ceiling() -> None:
    result = simulate(*QUICK)
    assert result.exit_code == 0, result.output
    shares = [
        float(cells(result, row)[1].removesuffix(" %")) for row in ("unlimited cache", "prefixgate", "least-req", "rr")
    ]
    assert shares[0] > shares[1] > max(shares[2:])
    assert cells(result, "rr")[-2:] == ["60", "0"]
    assert "4 x 307,328 tokens of KV cache, 20,480 tok/s" in result.stdout


def test_json_has_every_seed_and_their_means() -> None:
    found = simulated(*QUICK, "--policy", "rr", "--policy", "dynamo", "--policy", "rr", "--seeds", "3")
    assert list(found["policies"]) == ["rr", "dynamo"]
    for one in found["policies"].values():
        assert [run["seed"] for run in one["seeds"]] == [0, 1, 2]
        for figure in ("hit_share", "ttft_p90_s", "answered"):
            assert one["mean"][figure] == pytest.approx(sum(run[figure] for run in one["seeds"]) / 3)
    assert (found["load"], found["endpoints"], found["recorded"]) == ("llm-d-73", 4, None)
    assert found["policies"]["rr"]["mean"]["expected_minus_reported"] is None


def test_a_price_book_makes_a_bill_for_each_policy(prices: Path) -> None:
    found = simulated(*QUICK, "--prices", prices)
    for one in found["policies"].values():
        bill = one["mean"]["bill"]
        assert bill["currency"] == "USD"
        assert bill["full_pico"] - bill["charged_pico"] == bill["saved_pico"] >= 0
    mine, turns = (found["policies"][policy]["mean"]["bill"] for policy in ("prefixgate", "rr"))
    assert mine["full_pico"] == turns["full_pico"]
    assert mine["saved_pico"] > turns["saved_pico"]
    assert cells(simulate(*QUICK, "--prices", prices, "--seeds", "2"), "rr")[-2].startswith("USD ")


def test_a_model_without_a_price_is_unpriced(prices: Path) -> None:
    arguments = (*QUICK, "--prices", prices, "--model", "another")
    assert cells(simulate(*arguments), "rr")[-2:] == ["unpriced", "-"]
    assert simulated(*arguments, "--seeds", "2")["policies"]["rr"]["mean"]["bill"]["charged_pico"] is None


def test_prompts_that_no_engine_can_hold_are_counted() -> None:
    result = simulate("--load", "no-sharing", "--limit-requests", "40", "--capacity-tokens", "1024", "--policy", "rr")
    row = cells(result, "rr")
    answered, failed = int(row[9]), int(row[10].split()[0])
    assert answered + failed == 40
    assert row[10] == f"{failed} ({failed} too long)"


def test_where_nothing_is_answered_the_table_is_shown_and_the_command_fails() -> None:
    result = simulate(*QUICK, "--capacity-tokens", "160", "--policy", "rr")
    assert (result.exit_code, cells(result, "rr")[9:11]) == (1, ["0", "60 (60 too long)"])
    assert "no request was answered" in result.stderr


def test_a_fleet_that_splits_the_work_is_described() -> None:
    result = simulate(
        *(*QUICK, "--fleet", "2x llama_8b_h100:prefill, 1x llama_8b_h100:decode", "--host-tokens", "1000000"),
        *("--policy", "rr", "--replicas", "2", "--arrivals", "poisson", "--rate", "3"),
    )
    assert result.exit_code == 0, result.output
    assert "2 x prefill, " in result.stdout
    assert "1,000,000 in host memory" in result.stdout
    assert "2 gateways" in result.stdout
    assert "llm-d-73, poisson arrivals at 3/s, blocks of 16 tokens" in result.stdout


def test_a_restart_costs_requests_or_nothing_and_is_survived() -> None:
    found = simulated(*QUICK, "--restart", "0@1", "--restart", "1@2", "--closed-loop", "--policy", "prefixgate")
    mean = found["policies"]["prefixgate"]["mean"]
    assert mean["answered"] + mean["failed"] == 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--load NAME, --trace FILE and --from-ledger PERIOD"),
        (("--load", "nothing"), "no load is called 'nothing'; there are .*no-sharing"),
        (("--load", "llm-d-73", "--policy", "best"), "no policy is called 'best'; there are prefixgate, random, rr"),
        (("--load", "llm-d-73", "--engine", "h100"), "there are qwen3_32b_2xh100"),
        (("--load", "llm-d-73", "--block-size", "24"), "--block-size 24: .*blocks of 16 tokens"),
        (("--load", "llm-d-73", "--restart", "9@1"), "endpoints are 0 to 3"),
        (("--trace", "/no/such/file"), "No such file"),
        (("--load", "llm-d-73", "--prices", "/no/such/file"), "/no/such/file"),
        (("--from-ledger", "2026-11", "--ledger", "/no/such/file"), "no ledger at /no/such/file"),
        (("--from-ledger", "yesterday"), "a period is a month"),
        (("--from-ledger", "2026-11", "--load", "llm-d-73"), "leave out --load"),
        (("--load", "llm-d-73", "--concurrency", "0"), "concurrency"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(arguments: tuple[str, ...], words: str) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert re.search(words, " ".join(complaint(result).split()))


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.sim.command.simulated", interrupted)
    assert simulate(*QUICK).exit_code == 130


def test_progress_counts_all_runs_and_knows_how_many_there_will_be_when_one_has_ended() -> None:
    told: list[tuple[int, int | None]] = []
    runs = Runs(lambda done, total: told.append((done, total)), runs=4)
    for policy, seed, arrived in (("rr", 0, 1000), ("rr", 0, 2000), ("rr", 1, 1000), ("prefixgate", 0, 1000)):
        runs(policy, seed, arrived)
    assert told == [(1000, None), (2000, None), (3000, 8000), (4000, 6000)]


def test_a_file_that_is_no_trace_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0}\n')
    result = simulate("--trace", path)
    assert (result.exit_code, "line 1" in complaint(result)) == (2, True)


def test_the_simulator_is_not_loaded_to_serve() -> None:
    code = "import sys, gateway.cli; print([m for m in sys.modules if m.startswith(('gateway.sim.', 'backends.sim'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def opened(number: int, model: str = "m", *, keeps_chain: bool = True) -> OpenedRequest:
    """Forty conversations in turn, each prompt 256 tokens longer than the one before."""
    turn, conversation = divmod(number, 40)
    hashes = b"".join((conversation * 1000 + block + 1).to_bytes(8, "little") for block in range(turn + 4))
    chain = KeptChain(256, hashes) if keeps_chain else None
    at = NOON + timedelta(seconds=number * 0.1)
    path = "/v1/chat/completions"
    return OpenedRequest(f"{model} {number}", at, "acme", "acme-1", "acme", model, path, True, None, chain)


def ended(row: OpenedRequest, prefill_s: float | None, decode_s: float | None) -> Settlement:
    number = int(row.request_id.split()[1])
    return Settlement(
        request_id=row.request_id,
        settled_at=row.opened_at + timedelta(seconds=3),
        state=SettlementState.COMPLETE,
        http_status=200,
        endpoint_id="e",
        usage=Usage((number // 40 + 4) * 256 + 10, 256, 11),
        usage_json=None,
        convention="openai",
        flags=frozenset(),
        expected_cached_tokens=None,
        ttft_s=0.5,
        duration_s=1.0,
        attempts=(),
        prefill_s=prefill_s,
        decode_s=decode_s,
    )


def write(
    path: Path,
    rows: list[OpenedRequest],
    *,
    fast: bool | None = None,
    prices: Path | None = None,
    tokens_per_s: float = 5000,
    cached_tokens: int = 256,
) -> None:
    """A ledger of complete answers. `tokens_per_s` and 40 ms between tokens where `fast`; else of unknown speed."""

    def settled(row: OpenedRequest) -> Settlement:
        number = int(row.request_id.split()[1])
        uncached = (number // 40 + 4) * 256 + 10 - cached_tokens
        found = ended(row, 0.025 + uncached / tokens_per_s if fast else None, 0.4 if fast else None)
        return replace(found, usage=Usage(uncached + cached_tokens, cached_tokens, 11))

    async def written() -> None:
        book = PriceBook.empty() if prices is None else PriceBook.load(prices)
        async with open_ledger(path, book) as ledger:
            await asyncio.gather(*map(ledger.open, rows))
            await asyncio.gather(*(ledger.settle(settled(row)) for row in rows))

    asyncio.run(written())


def test_a_period_of_the_ledger_is_replayed_beside_what_was_recorded(tmp_path: Path, prices: Path) -> None:
    path = tmp_path / "ledger.db"
    write(path, [*map(opened, range(200)), *(opened(n, keeps_chain=False) for n in range(200, 220))], prices=prices)
    arguments = ("--from-ledger", "2026-11", "--ledger", path, "--prices", prices, "--endpoints", "2")
    found = simulated(*arguments)
    recorded = found["recorded"]
    assert (recorded["requests"], recorded["ttft_p50_s"], recorded["currency"]) == (200, 0.5, "USD")
    mine = found["policies"]["prefixgate"]["mean"]
    assert (mine["requests"], mine["answered"]) == (200, 200)
    assert mine["hit_share"] > recorded["hit_share"]
    assert mine["bill"]["full_pico"] == recorded["full_pico"]
    assert mine["bill"]["charged_pico"] < recorded["charged_pico"]
    assert re.search(r"left out of m: 20 no_chain, 1\d\.\d % of the prompt tokens", found["notes"][0])
    assert "20,480 tok/s (of qwen3_32b_2xh100)" in found["notes"][1]
    row = cells(simulate(*arguments, "--limit-requests", "50"), "as recorded")
    assert (row[2:4], row[9]) == (["-", "0.500"], "200")


def test_engines_are_as_fast_as_the_ledger_has_measured(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write(path, list(map(opened, range(200))), fast=True)
    arguments = ("--from-ledger", "2026-11-15", "--ledger", path, "--policy", "rr")
    (note,) = simulated(*arguments)["notes"]
    found = re.fullmatch(
        r"engines take [\d.]+ ms for each prompt and ([\d,]+) tok/s \(as measured over 200 prompts\), "
        r"([\d.]+) ms between tokens \(as measured over 200 answers\)",
        note,
    )
    assert found is not None
    assert float(found[1].replace(",", "")) == pytest.approx(5000, rel=0.25)
    assert float(found[2]) == pytest.approx(40, rel=0.01)
    asked = simulated(*arguments, "--prefill-tokens-per-s", "7000")
    assert asked["notes"] == ["engines are as fast as they were asked to be"]
    assert "7,000 tok/s" in asked["engines"][0]


@pytest.mark.parametrize("tokens_per_s", [400, 4000, 100_000])
def test_a_preset_that_is_far_from_the_ledgers_endpoints_has_no_say(tmp_path: Path, tokens_per_s: float) -> None:
    path = tmp_path / "ledger.db"
    write(path, list(map(opened, range(120))), fast=True, tokens_per_s=tokens_per_s, cached_tokens=1000)
    (note,) = simulated("--from-ledger", "2026-11-15", "--ledger", path, "--policy", "rr")["notes"]
    base_ms, rate = map(float, re.findall(r"[\d.]+", note.replace(",", ""))[:2])
    assert 0.001 * base_ms + 300 / rate == pytest.approx(0.025 + 300 / tokens_per_s, rel=0.05)
    if tokens_per_s <= 4000:
        assert rate == pytest.approx(tokens_per_s, rel=0.2)


def test_a_ledger_of_older_gateways_says_nothing_of_speed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write(path, list(map(opened, range(60))), fast=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE settlements DROP COLUMN prefill_s")
        connection.commit()
    (note,) = simulated("--from-ledger", "2026-11-15", "--ledger", path, "--policy", "rr")["notes"]
    assert "of the preset" in note


def test_a_pool_is_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write(path, [opened(0, "m"), opened(1, "n"), opened(2, "n"), opened(3, "o", keeps_chain=False)])
    period = ("--from-ledger", "2026-11", "--ledger", path)
    assert "--model m or n" in complaint(simulate(*period))
    found = simulated(*period, "--model", "n", "--policy", "rr")
    assert (found["load"], found["policies"]["rr"]["mean"]["answered"]) == ("ledger n", 2)


def test_a_period_without_anything_to_replay_fails_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write(path, [opened(0, keeps_chain=False)])
    period = ("--ledger", path, "--from-ledger")
    result = simulate(*period, "2026-11")
    assert (result.exit_code, "1 no_chain, 100.0 %" in complaint(result)) == (1, True)
    assert "ledger.chain_tokens was not set" in result.stderr
    result = simulate(*period, "2026-10")
    assert (result.exit_code, "no request from 2026-10-01" in complaint(result)) == (1, True)
    result = simulate(*period, "2026-11", "--model", "x")
    assert (result.exit_code, "no request for 'x'" in complaint(result)) == (1, True)


def test_several_ledgers_are_one_period(tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    rows = list(map(opened, range(40)))
    write(one, rows[::2])
    write(two, rows[1::2])
    found = simulated("--from-ledger", "2026-11-15", "--ledger", one, "--ledger", two, "--policy", "rr")
    assert found["policies"]["rr"]["mean"]["answered"] == 40
