"""`prefixgate tune`: settings of an engine against each other, by speed, memory and quality.

What it needs is imported when the command runs.
"""

import asyncio
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from gateway.command_line.answers import print_json
from gateway.command_line.progress import progress
from gateway.command_line.refusals import remark
from gateway.config import process_environment
from gateway.terminal import USUAL_KEY, AsJson, Quiet, key_in, refused
from gateway.terminal_tables import show_tables
from gateway.tuning.errors import NothingTuned, TuningError
from gateway.tuning.results import read_rows
from gateway.tuning.sweep_file import Sweep, read_sweep
from gateway.tuning.table import SPARE, Results, as_json, lines_of, results_of, table_of
from gateway.tuning.trying import Run, known_rows, planned, run
from gateway.whole_file import write_whole

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def tune(
    sweep: Annotated[Path, typer.Argument(help="YAML file; docs/tune.md shows it.")],
    results: Annotated[
        Path | None,
        typer.Option("--results", "-r", help="JSON Lines; default: NAME.results.jsonl beside the sweep."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture too: speed against quality.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try settings that failed before once more.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Start nothing: only what the results have by now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Start nothing: print what would run.")] = False,
    api_key_env: Annotated[str, typer.Option(help="Variable with the engine's key.")] = USUAL_KEY,
    as_json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Try settings of an engine one after the other: throughput, TTFT, ITL, memory, and always quality.

    Broken off, it goes on where it was. Exit 1 where no setting could be measured, 2 where the sweep cannot be run.
    """
    where = results or sweep.with_suffix(".results.jsonl")
    if svg is not None and not svg.absolute().parent.is_dir():
        raise refused(f"{svg}: there is no such folder", code="output_unwritable")
    try:
        found = read_sweep(sweep)
        if dry_run:
            _print_plan(found, as_json_=as_json_)
            return
        before = read_rows(where)
        if show:
            rows = known_rows(found, where)
        else:
            asked = Run(found, where, process_environment(), key_in(api_key_env), again)
            with progress("settings", quiet=quiet or as_json_) as told:
                rows = asyncio.run(_heeding_signals(run(asked, told)))
        judged = results_of(rows, found.front)
    except TuningError as error:
        raise refused(error, 2 if isinstance(error, ValueError) else 1) from None
    # The figures first: a disk that is full is not to cost them.
    _print(judged, as_json_=as_json_)
    if svg is not None:
        from gateway.tuning.plot import picture  # noqa: PLC0415 - only where one is wanted

        write_whole(svg, picture(judged))
    if not (show or again) and any(row.failed is not None and before.get(row.key) == row for row in rows):
        remark("what failed in an earlier run was not tried again: --again does")
    if all(row.failed is not None for row in rows):
        raise refused(NothingTuned(f"no setting could be measured; the last: {rows[-1].failed}"), 1)


async def _heeding_signals(work: Awaitable[T]) -> T:
    """What is told to end ends the engine first, and leaves nothing behind, as with Ctrl-C. Raises `typer.Exit`."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "a coroutine runs in one"
    came: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, end, number)
    try:
        return await work
    except asyncio.CancelledError:
        if came:
            raise typer.Exit(128 + came[0]) from None
        raise


def _print(found: Results, *, as_json_: bool) -> None:
    if as_json_:
        print_json(as_json(found))
        return
    console = show_tables(table_of(found), spare=SPARE, whole="--json")
    for line in lines_of(found):
        console.print(line, markup=False, highlight=False)


def _print_plan(sweep: Sweep, *, as_json_: bool) -> None:
    plan = [
        {
            "key": one.key,
            "setting": one.setting,
            "command": None if sweep.command is None else sweep.words_of(one.setting, 0),
            "url": None if sweep.command is not None else sweep.url_of(one.setting, 0),
        }
        for one in planned(sweep)
    ]
    if as_json_:
        print_json(plan)
        return
    for one, row in zip(planned(sweep), plan, strict=True):
        words = row["command"]
        typer.echo(f"{one.key}  {' '.join(words) if isinstance(words, list) else row['url']}")
