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
from typing import Final

import httpx

from gateway.tuning.asking import Asked, Examination, examine
from gateway.tuning.engine import Command, free_port, running
from gateway.tuning.errors import SettingFailed
from gateway.tuning.loading import speed_of
from gateway.tuning.questions import Question, held_text, questions
from gateway.tuning.results import append_row, key_of, read_rows
from gateway.tuning.sweep_file import Sweep
from gateway.tuning.types import Quality, Row, Speed, Value

_MODELS_S: Final = 60.0

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


@dataclass(frozen=True, slots=True)
class _Found:
    speed: Speed
    quality: Quality
    notes: list[str]


def planned(sweep: Sweep) -> list[Planned]:
    """Every setting, the baseline first. Raises `SweepInvalid` for files that cannot be read."""
    what = _examination(sweep)
    depends_on = {
        "command": sweep.words,
        "url": sweep.url,
        "model": sweep.model,
        "environment": sweep.environment,
        "load": sweep.load.model_dump(mode="json"),
        "text": what.text,
        "questions": [[one.prompt, one.answers, one.most_tokens] for one in what.questions],
        "again": what.again,
    }
    return [Planned(key_of(one, depends_on), one) for one in sweep.all_settings()]


async def run(what: Run, told: Told) -> list[Row]:
    """Try every setting that has no row yet; the rows of all, in their order. Raises `TuningError`s of the files.

    Cancelling it ends the engine that runs; the setting under way has no row, and is tried next time.
    """
    plan = planned(what.sweep)
    examination = _examination(what.sweep)
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
    """Those of the sweep that are in the results by now. Raises `TuningError`s of the files."""
    rows = read_rows(results)
    return [rows[one.key] for one in planned(sweep) if one.key in rows]


def _examination(sweep: Sweep) -> Examination:
    asked: list[Question] = questions(sweep.quality.questions, sweep.quality.open_tokens)
    return Examination(held_text(sweep.quality.text), asked, sweep.quality.again)


async def _row(what: Run, one: Planned, examination: Examination) -> Row:
    begun_s, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    found: _Found | None = None
    failed: str | None = None
    ready_s: float | None = None
    memory: int | None = None
    limit_s = what.sweep.limits.setting
    try:
        async with asyncio.timeout(limit_s):
            if what.sweep.command is None:
                found = await _ask(what, one, what.sweep.url_of(one.setting, 0), examination)
            else:
                found, ready_s, memory = await _started(what, one, examination)
    except SettingFailed as error:
        failed = error.why
    except TimeoutError:
        failed = f"it was not measured within {limit_s:g} s"
    return Row(
        key=one.key,
        setting=one.setting,
        at=at,
        seconds=round(time.monotonic() - begun_s, 3),
        failed=failed,
        speed=None if found is None else found.speed,
        quality=None if found is None else found.quality,
        ready_s=ready_s,
        memory_bytes=memory,
        notes=[] if found is None else found.notes,
    )


async def _started(what: Run, one: Planned, examination: Examination) -> tuple[_Found, float, int | None]:
    port = free_port()
    sweep = what.sweep
    command = Command(
        words=sweep.words_of(one.setting, port),
        environment={**what.environment, **sweep.environment_of(one.setting, port)},
        url=sweep.url_of(one.setting, port),
        ready_within_s=sweep.limits.ready,
    )
    with tempfile.TemporaryDirectory(prefix="prefixgate-tune-") as folder:
        async with running(command, Path(folder) / "engine.log") as engine:
            found = await engine.while_alive(_ask(what, one, command.url, examination))
            return found, round(engine.ready_s, 3), engine.peak_bytes()


async def _ask(what: Run, one: Planned, url: str, examination: Examination) -> _Found:
    """Quality first: it costs less, and an engine that cannot answer need not be measured."""
    base = url.rstrip("/").removesuffix("/v1")
    model = what.sweep.model_of(one.setting) or await _first_model(base, what.api_key)
    asked = Asked(base, model, what.api_key)
    quality = await examine(asked, examination)
    speed, notes = await speed_of(asked, what.sweep.load)
    return _Found(speed, quality, notes)


async def _first_model(url: str, api_key: str | None) -> str:
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    try:
        async with httpx.AsyncClient(timeout=_MODELS_S, headers=headers, trust_env=False) as client:
            page = (await client.get(f"{url}/v1/models")).raise_for_status().json()
            return str(page["data"][0]["id"])
    except httpx.HTTPError as error:
        raise SettingFailed(f"{url}/v1/models was not answered: {str(error) or type(error).__name__}") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise SettingFailed(f"{url} lists no model: name one in the sweep") from None
