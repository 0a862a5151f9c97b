"""Templates of a gateway of several workers: what one is told, all know."""

from pathlib import Path

import httpx
import pytest

from tests.gateway.templates.files import folder, support
from tests.gateway.workers.served import PATIENCE_S, served

pytestmark = pytest.mark.timeout(300)
CONNECTIONS = 12
"""Enough that both workers have one, but for a chance of 1 in 2048."""


async def test_a_version_that_one_worker_was_given_all_serve_at_once_and_retire_together(tmp_path: Path) -> None:
    place = folder(tmp_path / "templates", support=support())
    async with served(tmp_path, templates_dir=str(place), templates_poll_s=3600) as gateway:
        once = {"authorization": "Bearer letmein", "connection": "close", "content-type": "application/yaml"}
        async with httpx.AsyncClient(base_url=gateway.url, headers=once, timeout=PATIENCE_S) as http:
            assert (await http.put("/admin/templates/support@2", content=support("2"))).status_code == 200
            for _ in range(CONNECTIONS):
                assert (await http.get("/admin/templates/support")).json()["version"] == "2"
            assert (await http.delete("/admin/templates/support@2")).status_code == 200
            for _ in range(CONNECTIONS):
                assert (await http.get("/admin/templates/support")).json()["version"] == "1"
        assert gateway.logged("not all workers heard of a change") == []
