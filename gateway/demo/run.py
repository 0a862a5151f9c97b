"""The demo from its beginning to its end: engines, then for each policy a fresh gateway and the same work.

    engines (two) ──────────────────────────────────────────────────────────────
    round robin     caches emptied, gateway, all requests, counters, ledger
    prefix-aware    caches emptied, gateway, all requests, counters, ledger  ── kept running with --keep
                                                                        └─> invoice, cost table

What a run counts is the difference of the engines' own counters after and before it.
"""

import asyncio
import json
import math
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from backends.reference.errors import ModelUnavailable
from backends.reference.model_files import ensure_model
from gateway.command_line.refusals import say
from gateway.demo.accounts import make_accounts, show_accounts
from gateway.demo.bill import read_bill, read_cached_tokens
from gateway.demo.drive import drive
from gateway.demo.engines import (
    BLOCK_SIZE,
    ENGINES,
    INSTALL_MODEL,
    Engine,
    read_counters,
    require_extras,
    reset_caches,
    running_engines,
)
from gateway.demo.gateway_process import RunningGateway, running_gateway
from gateway.demo.processes import clean_environment
from gateway.demo.table import outcome_json, show_outcome
from gateway.demo.types import DemoFailed, DemoOutcome, Policy, RunResult, WorkingSet, Workload
from gateway.demo.workload import load_conversations, plan_workload, working_set
from prefix_index.prompt import load_model_text

KV_SHARE: Final = 0.6
"""Size of each engine's KV cache, as a share of the working set."""
CONCURRENCY: Final = 3


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to run. `max_turns` cuts conversations; `max_tokens` is the length of each answer."""

    seed: int = 1
    model: str = "smollm2"
    max_tokens: int = 8
    max_turns: int | None = None
    keep: bool = False
    quiet: bool = False
    """No progress on standard error."""


def demo_options(seed: int, model: str, *, quick: bool, keep: bool) -> DemoOptions:
    """The whole work, or with `quick` three turns of each conversation and answers of four tokens."""
    if quick:
        return DemoOptions(seed=seed, model=model, max_tokens=4, max_turns=3, keep=keep)
    return DemoOptions(seed=seed, model=model, keep=keep)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What every run shares."""

    workload: Workload
    engines: Sequence[Engine]
    model: str
    model_directory: Path
    home: Path
    environment: Mapping[str, str]


def main(options: DemoOptions, json_file: Path | None, console: Console) -> int:
    """Run the demo to its end and show it; the exit status: 0, 1 where the ledger disagrees, 2 where it failed.

    Ctrl-C and TERM stop everything that was started; with `keep` they are the ordinary end.
    """
    outcomes: list[DemoOutcome] = []

    def on_outcome(outcome: DemoOutcome) -> None:
        outcomes.append(outcome)
        show_outcome(outcome, console)
        if json_file is not None:
            json_file.write_text(json.dumps(outcome_json(outcome), indent=2) + "\n")
        show_accounts(make_accounts(outcome), _program(), console)

    try:
        _see_that_it_can_be_written(json_file)
        asyncio.run(run_demo(options, console, on_outcome))
    except DemoFailed as failure:
        say(str(failure), "demo_failed")
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped")
        if not (options.keep and outcomes):
            return 130
    return 0 if outcomes[0].ledger_agrees else 1


def _see_that_it_can_be_written(json_file: Path | None) -> None:
    """Before minutes of work, not after. Raises `DemoFailed`."""
    try:
        if json_file is not None:
            json_file.touch()
    except OSError as error:
        raise DemoFailed(f"cannot write {json_file}: {error.strerror}") from None


async def run_demo(options: DemoOptions, console: Console, on_outcome: Callable[[DemoOutcome], None]) -> None:
    """Both runs; tells the outcome, and with `keep` waits to be cancelled. Raises `DemoFailed`; leaves no process."""
    require_extras()
    _cancel_on_term()
    directory = await _model_directory(options.model, console)
    workload = plan_workload(
        load_conversations(max_turns=options.max_turns),
        seed=options.seed,
        model=options.model,
        max_tokens=options.max_tokens,
        concurrency=CONCURRENCY,
    )
    sizes = working_set(workload.requests, load_model_text(directory), model=options.model, block_size=BLOCK_SIZE)
    kv_blocks = math.ceil(KV_SHARE * sizes.blocks)
    _introduce(options, workload, sizes, kv_blocks, console)
    environment = clean_environment()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prefixgate-demo-")))
        with console.status("starting two engines"):
            engines = await stack.enter_async_context(
                running_engines(options.model, kv_blocks=kv_blocks, logs=home, environment=environment)
            )
        stage = _Stage(workload, engines, options.model, directory, home, environment)
        runs: list[RunResult] = []
        gateways = await stack.enter_async_context(AsyncExitStack())
        with _progress(quiet=options.quiet or console.quiet) as progress:
            for policy in Policy:
                await gateways.aclose()
                gateway, result = await _run(policy, stage, gateways, progress)
                runs.append(result)
                _stop_if_told()
        bill, total = read_bill(gateway.ledger)
        on_outcome(
            DemoOutcome(
                seed=options.seed,
                model=options.model,
                concurrency=CONCURRENCY,
                working_set=sizes,
                kv_blocks=kv_blocks,
                runs=tuple(runs),
                bill=bill,
                total=total,
                ledger=gateway.ledger,
            )
        )
        if options.keep:
            _invite(gateway, options.model, console)
            await asyncio.Event().wait()


async def _run(
    policy: Policy, stage: _Stage, gateways: AsyncExitStack, progress: Progress
) -> tuple[RunningGateway, RunResult]:
    bar = progress.add_task(policy.value.replace("_", " "), total=len(stage.workload.requests))
    await reset_caches(stage.engines)
    gateway = await gateways.enter_async_context(
        running_gateway(
            policy,
            stage.engines,
            model=stage.model,
            model_directory=stage.model_directory,
            home=stage.home / policy.value,
            environment=stage.environment,
        )
    )
    before = await read_counters(stage.engines)
    began_at, started_s = datetime.now(UTC), time.monotonic()
    answers = await drive(stage.workload, gateway.url, gateway.keys, lambda: progress.advance(bar))
    ended_at, wall_s = datetime.now(UTC), time.monotonic() - started_s
    counted = await read_counters(stage.engines) - before
    ttft_s = [answer.ttft_s for answer in answers]
    return gateway, RunResult(
        policy=policy,
        requests=len(answers),
        requests_by_engine=dict(sorted(Counter(answer.engine_id for answer in answers).items())),
        engines=counted,
        ledger_cached_tokens=read_cached_tokens(gateway.ledger),
        ttft_p50_s=percentile(ttft_s, 50),
        ttft_p90_s=percentile(ttft_s, 90),
        wall_s=wall_s,
        began_at=began_at,
        ended_at=ended_at,
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank: the least value with at least `percent` of all at or below it. O(n log n); not of nothing."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


async def _model_directory(model: str, console: Console) -> Path:
    try:
        with console.status("looking for the model (converted once, about 20 s)"):
            return await asyncio.to_thread(ensure_model, model)
    except ModelUnavailable as error:
        raise DemoFailed(f"{error}; make demo installs it, as does {INSTALL_MODEL}") from error


def _cancel_on_term() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _stop_if_told() -> None:
    """Raises `CancelledError` where a cancellation was lost on its way: in Python 3.11, what waits with a time limit
    may swallow one that comes in the same turn of the loop as its result."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _introduce(options: DemoOptions, workload: Workload, sizes: WorkingSet, kv_blocks: int, console: Console) -> None:
    conversations = {request.conversation for request in workload.requests}
    tenants = {request.tenant for request in workload.requests}
    console.print(
        f"[bold]{len(workload.requests)} requests[/] of {len(conversations)} conversations, {len(tenants)} tenants, "
        f"{sizes.prompt_tokens:,} prompt tokens, order shuffled by [bold]seed {options.seed}[/], "
        f"{workload.concurrency} at a time"
    )
    console.print(
        f"working set {sizes.blocks} blocks of {sizes.block_size} tokens; each of {ENGINES} engines ({options.model}) "
        f"holds [bold]{kv_blocks} blocks[/], {kv_blocks / sizes.blocks:.0%} of it"
    )


def _invite(gateway: RunningGateway, model: str, console: Console) -> None:
    key = next(iter(gateway.keys.values()))
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "What is a prefix?"}], "max_tokens": 20}
    )
    console.print("\neverything keeps running; try these, and end with Ctrl-C:\n")
    report = f"{_program()} report --from 2000-01-01 --to 2100-01-01 --ledger {gateway.ledger}"
    console.print(report, markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"curl -s {gateway.url}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{body}'\n",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _program() -> str:
    """How a shell runs this program: the script beside the interpreter, which need not be on the path."""
    script = Path(sys.executable).with_name("prefixgate")
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m gateway"


def _progress(*, quiet: bool) -> Progress:
    """Two bars on standard error, which stay; only on a terminal."""
    counts = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    is_hidden = quiet or not console.is_terminal
    return Progress(TextColumn("{task.description:<12}"), *counts, console=console, disable=is_hidden)
