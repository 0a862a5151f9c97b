"""K of the acceptance scenarios, over the wire: kill -9 of a gateway under load; and what the audit would find."""

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bench.crash import Call, End, Findings, audit, crash
from bench.crash_engine import Known, KnownEngine, known_by_prompt

KILLS = 10


@pytest.mark.timeout(300)
async def test_k_ten_kills_under_load_lose_nothing_that_a_client_saw_the_end_of(tmp_path: Path) -> None:
    found = await crash(KILLS, seed=1, home=tmp_path / "crash")
    assert (found.missing, found.twice, found.wrong, found.left_open) == ([], [], [], 0)
    assert found.calls[End.SERVED] > KILLS
    assert found.rows["complete"] >= found.calls[End.SERVED]
    assert found.rows["interrupted"] > 0
    assert set(found.rows) <= {"complete", "partial", "failed", "interrupted"}


def test_a_call_is_known_by_its_prompt() -> None:
    assert [known_by_prompt(Known(number).prompt_tokens).number for number in range(50)] == list(range(50))
    assert all(0 <= Known(number).cached_tokens < Known(number).prompt_tokens for number in range(500))


def audited(path: Path, rows: list[tuple[str, str | None, int, int, int, int]], seen: list[Call]) -> Findings:
    """Rows: request, state, prompt, cached, output, pico-dollars."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE requests (request_id)")
        file.execute(
            "CREATE TABLE settlements (request_id, state, prompt_tokens, cached_tokens, output_tokens, charged_units,"
            " charged_pico)"
        )
        file.executemany("INSERT INTO requests VALUES (?)", [(row[0],) for row in rows])
        settled = [(*row[:5], 0, row[5]) for row in rows if row[1] is not None]
        file.executemany("INSERT INTO settlements VALUES (?, ?, ?, ?, ?, ?, ?)", settled)
    engine = KnownEngine(random.Random(1), asked=dict.fromkeys(range(10), 1))
    findings = Findings(kills=0)
    audit(path, seen, engine, findings)
    return findings


def row(request_id: str, number: int, state: str | None = "complete") -> tuple[str, str | None, int, int, int, int]:
    known = Known(number)
    fresh = known.prompt_tokens - known.cached_tokens
    pico = fresh * 3_000_000 + known.cached_tokens * 300_000 + known.output_tokens * 4_000_000
    return request_id, state, known.prompt_tokens, known.cached_tokens, known.output_tokens, pico


def test_the_audit_finds_nothing_where_all_is_well(tmp_path: Path) -> None:
    rows = [row("a", 1), row("b", 2, "interrupted"), row("c", 3, "partial")]
    found = audited(tmp_path / "l.db", rows, [Call(1, End.SERVED, "a"), Call(2, End.CUT, "b"), Call(4, End.LOST)])
    assert found.faults == 0
    assert found.rows == Counter(complete=1, interrupted=1, partial=1)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([], "missing"),
        ([row("a", 1, "interrupted")], "missing"),
        ([row("a", 2)], "missing"),
        ([row("a", 1), row("b", 1)], "twice"),
        ([row("a", 1), row("b", 77)], "twice"),
        ([row("a", 1), (*row("b", 2)[:5], 7)], "wrong"),
        ([row("a", 1), row("b", 2, None)], "left_open"),
    ],
    ids=["no row", "row without an end", "another call's row", "two rows", "never asked", "another amount", "open"],
)
def test_the_audit_finds_each_fault(
    rows: list[tuple[str, str | None, int, int, int, int]], fault: str, tmp_path: Path
) -> None:
    found = audited(tmp_path / "l.db", rows, [Call(1, End.SERVED, "a")])
    assert found.faults > 0
    assert getattr(found, fault)
