"""What the ledgers hold, read as it lies in PostgreSQL or in SQLite files."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg

from bench.faults.types import Attempt, Counts, Row

_PICO: Final = 10**12
_US: Final = 10**6
_ROWS: Final = """
SELECT r.request_id, r.job_id, r.tenant_id, s.state, s.prompt_tokens, s.cached_tokens, s.output_tokens, s.flags,
       s.endpoint_id, s.charged_units, s.charged_pico, s.continuations
FROM requests r LEFT JOIN settlements s ON s.request_id = r.request_id
"""
_ATTEMPTS: Final = "SELECT request_id, endpoint_id, started_at_us, outcome FROM attempts ORDER BY request_id, ordinal"
_CORRECTIONS: Final = "SELECT request_id, charged_units, charged_pico FROM corrections WHERE request_id IS NOT NULL"

Values = Sequence[object]


def rows_of_server(url: str) -> list[Row]:
    """All requests of a ledger in PostgreSQL."""
    with psycopg.connect(url) as connection:
        rows, attempts, corrections = (
            connection.execute(query).fetchall() for query in (_ROWS, _ATTEMPTS, _CORRECTIONS)
        )
    return _rows(rows, attempts, corrections, ledger=None)


def rows_of_file(ledger: Path, gateway: str) -> list[Row]:
    """All requests of a gateway's own ledger."""
    with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as file:
        rows, attempts, corrections = (file.execute(query).fetchall() for query in (_ROWS, _ATTEMPTS, _CORRECTIONS))
    return _rows(rows, attempts, corrections, ledger=gateway)


def _rows(
    rows: Iterable[Values], attempts: Iterable[Values], corrections: Iterable[Values], ledger: str | None
) -> list[Row]:
    tried: dict[object, list[Attempt]] = {}
    for request_id, endpoint, began_us, outcome in attempts:
        assert isinstance(began_us, int)
        tried.setdefault(request_id, []).append(Attempt(str(endpoint), began_us / _US, str(outcome)))
    corrected: dict[object, int] = {}
    for request_id, units, pico in corrections:
        corrected[request_id] = corrected.get(request_id, 0) + (_money(units, pico) or 0)
    return [_row(values, tried.get(values[0], []), corrected.get(values[0]), ledger) for values in rows]


def _row(values: Values, attempts: Sequence[Attempt], corrected: int | None, ledger: str | None) -> Row:
    request_id, job, tenant, state, prompt, cached, output, flags, endpoint, units, pico, continuations = values
    charged = _money(units, pico)
    return Row(
        request_id=str(request_id),
        job=None if job is None else str(job),
        tenant=str(tenant),
        state=None if state is None else str(state),
        usage=Counts(*(one if isinstance(one, int) else None for one in (prompt, cached, output))),
        is_estimated="estimated" in str(flags or ""),
        endpoint=None if endpoint is None else str(endpoint),
        charged_pico=charged if corrected is None else (charged or 0) + corrected,
        is_corrected=corrected is not None,
        ledger=ledger,
        continuations=continuations if isinstance(continuations, int) else 0,
        attempts=tuple(attempts),
    )


def _money(units: object, pico: object) -> int | None:
    return units * _PICO + pico if isinstance(units, int) and isinstance(pico, int) else None
