"""Every client sees each token before the engine sends the next one; and how long after it was sent, in milliseconds.

The gateway runs in a process of its own; the same is asked of the engine itself, so that the client's part is known.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from gateway.demo.processes import clean_environment, started_process
from tests.clients.programs import PROGRAMS
from tests.gateway.conftest import ledger_rows
from tests.gateway.first_token import PYTHON_CLIENTS, ROUND_S, TRANSLATED, patient_engine

pytestmark = pytest.mark.clients

ROUNDS: Final = 20
CLIENTS: Final = PYTHON_CLIENTS | PROGRAMS


@asynccontextmanager
async def gateway_process(engine_url: str, home: Path) -> AsyncIterator[str]:
    """A gateway before this engine; gives its address."""
    command = [sys.executable, "-m", "gateway", "serve", "--backend", engine_url, "--port", "0"]
    environment = clean_environment() | {"PREFIXGATE_LEDGER__PATH": str(home / "ledger.db")}
    async with started_process(
        "gateway", command, log=home / "log", environment=environment, ready_within_s=60.0
    ) as starting:
        yield await starting.url()


@pytest.mark.parametrize("name", CLIENTS)
async def test_the_first_token_is_there_when_the_engine_sends_it(
    name: str, tmp_path: Path, figures: list[dict[str, object]]
) -> None:
    ask = CLIENTS[name]
    row: dict[str, object] = {"client": name, "rounds": ROUNDS, "translated": name in TRANSLATED}
    async with patient_engine() as (engine, handshake), gateway_process(engine.url, tmp_path) as gateway_url:
        for through, url in (("gateway", gateway_url), ("engine", engine.url)):
            if through == "engine" and name in TRANSLATED:
                continue  # it does not speak this dialect
            handshake.gaps_s.clear()
            async with asyncio.timeout(2 * ROUND_S):
                await ask(url, 1 + ROUNDS, handshake.seen)
            _, *gaps_ms = [1000 * gap_s for gap_s in handshake.gaps_s]  # the first time a client loads its code
            assert len(gaps_ms) == ROUNDS
            row |= {f"{through}_p50_ms": round(median(gaps_ms), 2), f"{through}_max_ms": round(max(gaps_ms), 2)}
    figures.append(row)
    assert [row.state for row in ledger_rows(tmp_path / "ledger.db")] == ["complete"] * (1 + ROUNDS)
