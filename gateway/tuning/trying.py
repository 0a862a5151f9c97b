"""Settings one after the other, each a row on the disk before the next begins.

results has the row?  yes: next     failed rows: only when asked for again
       │ no
       v
start, wait ──> quality ──> load ──> memory ──> row        whatever goes wrong on the way: a row with the reason
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from gateway.tuning.asking import Asked, Examination, examine
from gateway.tuning.engine import Command, free_port, running
from gateway.tuning.errors import NothingTuned, SettingFailed, SweepInvalid
from gateway.tuning.identity import who
from gateway.tuning.loading import need_usable, speed_of
from gateway.tuning.questions import Question, held_text, questions
from gateway.tuning.results import append_row, key_of, only_writer, read_rows
from gateway.tuning.sweep_file import Sweep, load_digests
from gateway.tuning.types import Row, Value

Told = Callable[[int, int | None], None]
"""Told how many settings are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sweep to run: where its results are, whether failed settings are tried again, whose key and environment."""

    sweep: Sweep
    results: Path
    environment: Mapping[str, str]
    api_key: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A setting and the name of its row."""

    key: str
    setting: dict[str, Value]


def planned(sweep: Sweep) -> list[Planned]:
    """Every setting, the baseline first. Raises `SweepInvalid` for files that cannot be read."""
    what = _examination(sweep)
    depends_on: dict[str, object] = {
        "command": sweep.words,
        "url": sweep.url,
        "model": sweep.model,
        "environment": sweep.environment,
        "load": sweep.load.model_dump(mode="json"),
        "text": what.text,
        "questions": [[one.prompt, one.answers, one.most_tokens] for one in what.questions],
        "again": what.again,
    }
    if digests := load_digests(sweep.load):
        depends_on["files"] = digests
    return [Planned(key_of(one, depends_on), one) for one in sweep.all_settings()]


async def run(what: Run, told: Told) -> list[Row]:
    """Try every setting that has no row yet; the rows of all, in their order. Raises `TuningError`s of the files.

    Cancelling it ends the engine that runs; the setting under way has no row, and is tried next time.
    """
    plan = planned(what.sweep)
    need_usable(what.sweep.load)
    examination = _examination(what.sweep)
    with only_writer(what.results):
        rows = read_rows(what.results)
        for done, one in enumerate(plan):
            told(done, len(plan))
            before = rows.get(one.key)
            if before is not None and (before.failed is None or not what.again):
                continue
            rows[one.key] = await _row(what, one, examination)
            append_row(what.results, rows[one.key])
    told(len(plan), len(plan))
    return [rows[one.key] for one in plan]


def known_rows(sweep: Sweep, results: Path) -> list[Row]:
    """Those of the sweep that are in the results by now, the baseline first. Raises `TuningError`s of the files, and
    `NothingTuned` without the baseline: others would be held against one that is none."""
    rows = read_rows(results)
    plan = planned(sweep)
    found = [rows[one.key] for one in plan if one.key in rows]
    if not found:
        raise NothingTuned(f"{results} has no result of this sweep yet")
    if plan[0].key not in rows:
        raise NothingTuned(f"{results} has no result of the baseline yet")
    return found


def _examination(sweep: Sweep) -> Examination:
    asked: list[Question] = questions(sweep.quality.questions, sweep.quality.open_tokens)
    text = held_text(sweep.quality.text)
    if not text and not asked:
        raise SweepInvalid("quality: there is neither a text nor a question to tell it by")
    return Examination(text, asked, sweep.quality.again)


async def _row(what: Run, one: Planned, examination: Examination) -> Row:
    begun_s, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    blank = Row(key=one.key, setting=one.setting, at=at, seconds=0.0, failed="")
    limit_s = what.sweep.limits.setting
    try:
        async with asyncio.timeout(limit_s) as left:
            if what.sweep.command is None:
                row = await _ask(what, blank, what.sweep.url_of(one.setting, 0), examination)
            else:
                row = await _started(what, blank, examination, left)
    except SettingFailed as error:
        row = replace(blank, failed=error.why)
    except TimeoutError:
        row = replace(blank, failed=f"it was not measured within {limit_s:g} s")
    return replace(row, seconds=round(time.monotonic() - begun_s, 3))


async def _started(what: Run, blank: Row, examination: Examination, left: asyncio.Timeout) -> Row:
    """The row of an engine that is started for it. How long it takes to end is no part of what is `left`."""
    port = free_port()
    sweep = what.sweep
    command = Command(
        words=sweep.words_of(blank.setting, port),
        environment={**what.environment, **sweep.environment_of(blank.setting, port)},
        url=sweep.url_of(blank.setting, port),
        ready_within_s=sweep.limits.ready,
    )
    with tempfile.TemporaryDirectory(prefix="prefixgate-tune-") as folder:
        async with running(command, Path(folder) / "engine.log") as engine:
            row = await engine.while_alive(_ask(what, blank, command.url, examination))
            memory = await asyncio.to_thread(engine.memory)
            left.reschedule(None)
            return replace(
                row, ready_s=round(engine.ready_s, 3), memory_bytes=memory.peak_bytes, gpu_bytes=memory.gpu_bytes
            )


async def _ask(what: Run, blank: Row, url: str, examination: Examination) -> Row:
    """Quality first: it costs less, and an engine that cannot answer need not be measured."""
    base = url.rstrip("/").removesuffix("/v1")
    found = await who(base, what.sweep.model_of(blank.setting), what.api_key)
    asked = Asked(base, found.model, what.api_key)
    quality = await examine(asked, examination)
    speed, notes = await speed_of(asked, what.sweep.load)
    return replace(
        blank,
        failed=None,
        speed=speed,
        quality=quality,
        notes=notes,
        kv_tokens=found.kv_tokens,
        engine=found.engine,
        version=found.version,
    )
