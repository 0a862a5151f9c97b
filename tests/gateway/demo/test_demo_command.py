"""The demo itself, on real processes: engines in torch, a private Valkey, gateways, ledgers."""

import asyncio
import io
import json
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import aiohttp
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from billing.invoicing.minor_units import pico_of
from gateway.cli import cli
from gateway.demo import DemoFailed, DemoOptions, DemoOutcome, Policy, demo_options, main, run_demo
from gateway.demo import engines as demo_engines
from gateway.demo import run as demo_run
from gateway.demo.accounts import make_accounts

QUIET = Console(quiet=True)


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


def see_that_it_adds_up(outcome: DemoOutcome) -> None:
    in_turn, prefix = outcome.runs
    assert (in_turn.policy, prefix.policy) == (Policy.ROUND_ROBIN, Policy.PREFIX)
    assert in_turn.requests == prefix.requests == 33
    for run in outcome.runs:
        assert run.ledger_cached_tokens == run.engines.cached_tokens > 0
        assert run.engines.prompt_tokens == outcome.working_set.prompt_tokens
    assert in_turn.requests_by_engine == {"engine-0": 17, "engine-1": 16}
    assert prefix.engines.computed_tokens < in_turn.engines.computed_tokens
    assert outcome.kv_blocks == pytest.approx(0.6 * outcome.working_set.blocks, abs=1)
    assert {line.tenant for line in outcome.bill} == {"acme", "birch", "cedar"}
    assert sum(line.cached_tokens for line in outcome.bill) == prefix.engines.cached_tokens
    assert sum(Decimal(line.charged) for line in outcome.bill) == Decimal(outcome.total.charged)


def see_that_the_invoice_is_of_the_bill(outcome: DemoOutcome) -> None:
    accounts = make_accounts(outcome)
    [line] = [one for one in outcome.bill if one.tenant == accounts.invoice.tenant_id]
    assert sum(pico_of(entry.charged) for entry in accounts.invoice.usage) == pico_of(line.charged)
    assert accounts.costs.whole().revenue_pico == pico_of(outcome.total.charged)
    assert [one.endpoint_id for one in accounts.costs.account.endpoints] == ["engine-0", "engine-1"]


async def test_the_demo_saves_prefill_agrees_with_its_ledger_and_stops_all_it_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PREFIXGATE_SCHEDULING__POLICY", "round_robin")
    output = io.StringIO()
    outcomes: asyncio.Queue[DemoOutcome] = asyncio.Queue()
    options = demo_options(1, "tiny", quick=True, keep=True)
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as http:
        demo = group.create_task(run_demo(options, Console(file=output, width=200), outcomes.put_nowait))
        outcome = await outcomes.get()
        see_that_it_adds_up(outcome)
        see_that_the_invoice_is_of_the_bill(outcome)

        [curl] = [line for line in output.getvalue().splitlines() if line.startswith("curl ")]
        [report] = [line for line in output.getvalue().splitlines() if " report --from " in line]
        arguments = shlex.split(curl)
        headers = dict(arguments[at + 1].split(": ", 1) for at, flag in enumerate(arguments) if flag == "-H")
        [url] = [argument for argument in arguments if argument.startswith("http")]
        everyone = {url.removesuffix("/v1/chat/completions"), *addresses(tmp_path)}
        assert len(everyone) == 3
        assert all([await answers(http, one) for one in everyone])
        async with http.post(url, data=arguments[-1], headers=headers) as answer:
            assert answer.status == 200
        shown = await asyncio.create_subprocess_exec(*shlex.split(report), "--format", "csv", stdout=PIPE)
        lines, _ = await shown.communicate()
        assert shown.returncode == 0
        assert b"acme" in lines

        demo.cancel()
        with suppress(asyncio.CancelledError):
            await demo
        assert not any([await answers(http, one) for one in everyone])
    assert list(tmp_path.glob("prefixgate-demo-*")) == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_a_demo_that_is_stopped_early_leaves_nothing(tmp_path: Path, stop: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "demo", "--model", "tiny", "--quick"),
        stdout=PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    async for line in process.stdout:
        if line.startswith(b"working set"):
            break
    process.send_signal(stop)
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
    monkeypatch: pytest.MonkeyPatch, served: DemoOutcome, tmp_path: Path
) -> None:
    use(monkeypatch, served)
    assert main(DemoOptions(), tmp_path / "demo.json", QUIET) == 0
    assert json.loads((tmp_path / "demo.json").read_text())["ledger_agrees"] is True
    assert len(list(tmp_path.glob("prefixgate-invoice-*/*.pdf"))) == 1


def test_the_status_is_one_when_the_ledger_is_a_token_off(monkeypatch: pytest.MonkeyPatch, served: DemoOutcome) -> None:
    first, second = served.runs
    use(monkeypatch, replace(served, runs=(replace(first, ledger_cached_tokens=1), second)))
    assert main(DemoOptions(), None, QUIET) == 1


def test_the_status_is_two_when_the_demo_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fails=DemoFailed("an engine did not start"))
    assert main(DemoOptions(), None, QUIET) == 2


@pytest.mark.parametrize(("keep", "status"), [(True, 0), (False, 130)])
def test_ctrl_c_is_the_ordinary_end_only_of_a_demo_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, served: DemoOutcome, keep: bool, status: int
) -> None:
    use(monkeypatch, served, fails=KeyboardInterrupt())
    assert main(DemoOptions(keep=keep), None, QUIET) == status


def test_a_json_file_that_cannot_be_written_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, served: DemoOutcome, tmp_path: Path
) -> None:
    use(monkeypatch, served)
    assert main(DemoOptions(), tmp_path / "nowhere" / "demo.json", QUIET) == 2


def test_missing_extras_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_engines, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(DemoFailed, match=r"needs torch; .*pip install '\.\[embedded,reference\]'"):
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
