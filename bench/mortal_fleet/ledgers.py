"""What the ledgers of the replicas hold, read as they lie on the disk."""

import sqlite3
from contextlib import closing
from pathlib import Path

from bench.mortal_fleet.types import Counts, Row

_PICO = 10**12
_ROWS = """
SELECT r.request_id, r.tenant_id, s.state, s.prompt_tokens, s.cached_tokens, s.output_tokens,
       s.expected_cached_tokens, s.endpoint_id, s.charged_units, s.charged_pico
FROM requests r LEFT JOIN settlements s ON s.request_id = r.request_id
"""


def read_rows(ledger: Path, number: int = 0) -> list[Row]:
    """All requests of a ledger that nobody owns at the moment, or whose owner goes on writing: as of now."""
    with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as file:
        return [_row(number, values) for values in file.execute(_ROWS)]


def _row(number: int, values: tuple[object, ...]) -> Row:
    request_id, tenant, state, *counts, expected, endpoint, units, pico = values
    charged = units * _PICO + pico if isinstance(units, int) and isinstance(pico, int) else None
    return Row(
        ledger=number,
        request_id=str(request_id),
        tenant=str(tenant),
        state=None if state is None else str(state),
        usage=Counts(*(count if isinstance(count, int) else None for count in counts)),
        expected_tokens=expected if isinstance(expected, int) else None,
        endpoint=None if endpoint is None else str(endpoint),
        charged_pico=charged,
    )
