"""kill -9 of a process that owns a ledger: what it acknowledged is there, once; what it left open is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest

from billing import open_ledger
from tests.billing.conftest import Rows
from tests.billing.samples import book

GATEWAY = """
import asyncio, os, sys
from billing import PriceBook, open_ledger
from tests.billing.samples import book, opened, settled

async def main(path):
    async with open_ledger(path, book()) as ledger:
        async def client(number):
            for call in range(1_000_000):
                request_id = f"{number}-{call}"
                await ledger.open(opened(request_id))
                os.write(1, f"opened {request_id}\\n".encode())
                if call % 3:
                    await ledger.settle(settled(request_id))
                    os.write(1, f"settled {request_id}\\n".encode())
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(client(number))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("acknowledgements", [1, 500, 2000])
async def test_a_killed_gateway_loses_nothing_it_acknowledged(
    ledger_path: Path, rows: Rows, acknowledgements: int
) -> None:
    said: dict[str, list[str]] = {"opened": [], "settled": []}
    command = [sys.executable, "-c", GATEWAY, str(ledger_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        for count, line in enumerate(gateway.stdout, 1):
            what, request_id = line.split()
            said[what].append(request_id)
            if count == acknowledgements:
                gateway.kill()
    async with open_ledger(ledger_path, book()) as ledger:
        interrupted = ledger.interrupted
    requests = {row["request_id"] for row in rows("requests")}
    states = {row["request_id"]: row["state"] for row in rows("settlements")}
    assert requests >= set(said["opened"])
    assert states.keys() == requests
    assert {states[request_id] for request_id in said["settled"]} <= {"complete"}
    assert sum(state == "interrupted" for state in states.values()) == interrupted
    never_settled = {request_id for request_id in requests if int(request_id.split("-")[1]) % 3 == 0}
    assert {states[request_id] for request_id in never_settled} == {"interrupted"}
