"""Two workers serve as one gateway: one ledger, one index; one that is killed takes nothing with it."""

import asyncio
import os
import signal
from pathlib import Path

from tests.gateway.workers.served import PATIENCE_S, served


async def test_a_worker_that_is_killed_loses_nothing_and_is_replaced(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await gateway.answers(60)
        first, second = await gateway.until_logged("worker ready", 2)
        assert {first["slot"], second["slot"]} == {0, 1}
        os.kill(first["pid"], signal.SIGKILL)
        await gateway.answers(60)
        (died,) = await gateway.until_logged("worker died")
        assert (died["pid"], died["status"]) == (first["pid"], -signal.SIGKILL)
        *_, successor = await gateway.until_logged("worker ready", 3)
        assert successor["slot"] == first["slot"]
        await gateway.answers(60)
        gateway.clients.up.clear()
        await asyncio.wait_for(gateway.member.stop(), PATIENCE_S)
        (ended,) = gateway.logged("stopped")
        assert ended["workers"] == [0, 0]
    found = gateway.audit()
    assert (found.missing, found.twice, found.wrong, found.left_open) == ([], [], [], 0)
    assert set(found.rows) <= {"complete", "partial", "interrupted"}
