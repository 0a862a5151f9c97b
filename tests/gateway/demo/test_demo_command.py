"""The demo itself, on real processes: engines in torch, a private Valkey, gateways, ledgers."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import aiohttp
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import cli
from gateway.demo import DemoFailed, DemoOptions, DemoOutcome, demo_options, main
from gateway.demo import engines as demo_engines
from gateway.demo import run as demo_run

QUIET = Console(quiet=True)


async def start_demo(tmp_path: Path, *flags: str) -> Process:
    """The command, with its temporary files under `tmp_path`, and its output in lines that are not folded."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "demo", "--model", "tiny", "--quick", *flags),
        stdout=PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200", "PREFIXGATE_SCHEDULING__POLICY": "round_robin"},
    )


async def read_until(process: Process, start: str) -> tuple[str, str]:
    """The output up to a line that begins with `start`, and that line."""
    assert process.stdout is not None
    lines: list[str] = []
    async for line in process.stdout:
        lines.append(line.decode())
        if lines[-1].startswith(start):
            return "".join(lines), lines[-1]
    raise AssertionError("".join(lines))


def addresses(tmp_path: Path) -> set[str]:
    """The engines of the demo that runs with its files under `tmp_path`."""
    [config] = tmp_path.glob("prefixgate-demo-*/prefix/gateway.yaml")
    return {backend["url"] for backend in yaml.safe_load(config.read_text())["backends"]}


async def answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectorError:
        return False


async def test_the_demo_saves_prefill_agrees_with_its_ledger_and_stops_all_it_kept(tmp_path: Path) -> None:
    json_file = tmp_path / "demo.json"
    process = await start_demo(tmp_path, "--keep", "--json", str(json_file))
    output, curl = await read_until(process, "curl ")

    outcome = json.loads(json_file.read_text())
    in_turn, prefix = outcome["runs"]
    assert in_turn["requests"] == prefix["requests"] == 33
    assert in_turn["prompt_tokens"] == prefix["prompt_tokens"] == outcome["working_set"]["prompt_tokens"]
    assert prefix["computed_tokens"] < in_turn["computed_tokens"]
    for run in outcome["runs"]:
        assert run["ledger_cached_tokens"] == run["cached_tokens"] > 0
        assert run["cached_tokens"] + run["computed_tokens"] == run["prompt_tokens"]
    assert sum(one["cached_tokens"] for one in outcome["bill"]) == prefix["cached_tokens"]
    assert sum(Decimal(one["charged"]) for one in outcome["bill"]) == Decimal(outcome["total"]["charged"])
    assert {one["tenant"] for one in outcome["bill"]} == {"acme", "birch", "cedar"}
    assert outcome["kv_blocks"] == pytest.approx(0.6 * outcome["working_set"]["blocks"], abs=1)
    assert f"{prefix['computed_tokens']:,}" in output
    assert output.count("agrees") == 2

    url = re.findall(r"http://\S+?(?=/v1)", curl)[0]
    arguments = shlex.split(curl)
    headers = dict(arguments[at + 1].split(": ", 1) for at, flag in enumerate(arguments) if flag == "-H")
    everyone = {url, *addresses(tmp_path)}
    assert len(everyone) == 3
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{url}/v1/chat/completions", data=arguments[-1], headers=headers) as answer:
            assert answer.status == 200
        assert all([await answers(http, one) for one in everyone])
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert not any([await answers(http, one) for one in everyone])
    assert list(tmp_path.glob("prefixgate-demo-*")) == []


async def test_a_demo_that_is_stopped_early_leaves_nothing(tmp_path: Path) -> None:
    process = await start_demo(tmp_path)
    await read_until(process, "working set")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 130
    assert list(tmp_path.glob("prefixgate-demo-*")) == []


def use(monkeypatch: pytest.MonkeyPatch, *outcomes: DemoOutcome, fails: BaseException | None = None) -> None:
    """Put a demo that does no work in place of the real one."""

    async def run(options: DemoOptions, console: Console, on_outcome: Callable[[DemoOutcome], None]) -> None:
        for outcome in outcomes:
            on_outcome(outcome)
        if fails is not None:
            raise fails

    monkeypatch.setattr(demo_run, "run_demo", run)


def test_the_status_is_zero_and_the_json_is_written_when_the_ledger_agrees(
    monkeypatch: pytest.MonkeyPatch, outcome: DemoOutcome, tmp_path: Path
) -> None:
    use(monkeypatch, outcome)
    assert main(DemoOptions(), tmp_path / "demo.json", QUIET) == 0
    assert json.loads((tmp_path / "demo.json").read_text())["ledger_agrees"] is True


def test_the_status_is_one_when_the_ledger_is_a_token_off(
    monkeypatch: pytest.MonkeyPatch, outcome: DemoOutcome
) -> None:
    first, second = outcome.runs
    use(monkeypatch, replace(outcome, runs=(replace(first, ledger_cached_tokens=1), second)))
    assert main(DemoOptions(), None, QUIET) == 1


def test_the_status_is_two_when_the_demo_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fails=DemoFailed("an engine did not start"))
    assert main(DemoOptions(), None, QUIET) == 2


@pytest.mark.parametrize(("keep", "status"), [(True, 0), (False, 130)])
def test_ctrl_c_is_the_ordinary_end_only_of_a_demo_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, outcome: DemoOutcome, keep: bool, status: int
) -> None:
    use(monkeypatch, outcome, fails=KeyboardInterrupt())
    assert main(DemoOptions(keep=keep), None, QUIET) == status


def test_a_json_file_that_cannot_be_written_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, outcome: DemoOutcome, tmp_path: Path
) -> None:
    use(monkeypatch, outcome)
    assert main(DemoOptions(), tmp_path / "nowhere" / "demo.json", QUIET) == 2


def test_missing_extras_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_engines, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(DemoFailed, match=r"needs torch: pip install 'prefixgate\[embedded,reference\]'"):
        demo_engines.require_extras()


def test_quick_is_a_part_of_the_work() -> None:
    whole, quick = (demo_options(3, "tiny", quick=quick, keep=False) for quick in (False, True))
    assert (whole.seed, whole.max_turns) == (3, None)
    assert quick.max_turns == 3
    assert quick.max_tokens < whole.max_tokens


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(cli, ["demo", "--model", "gpt"])
    assert result.exit_code == 2
    assert "smollm2, tiny" in result.output
