"""Several workers that find endpoints: each looks for itself, and all come to the same."""

import asyncio
import json
from pathlib import Path

import httpx

from tests.backends.engine_page import EnginePage
from tests.gateway.workers.served import PATIENCE_S, Served, served

CONNECTIONS = 12
TOKEN = {"authorization": "Bearer letmein"}
ONCE = {"connection": "close"}


async def all_workers_know(gateway: Served, http: httpx.AsyncClient, wanted: set[str]) -> None:
    """Asked over many connections, some of which each worker has, until all say so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answers = [(await http.get("/ready", headers=ONCE)).json()["endpoints"] for _ in range(CONNECTIONS)]
            if all(set(answer) == wanted for answer in answers):
                return


async def test_two_workers_come_to_the_same_endpoints(tmp_path: Path) -> None:
    listing = tmp_path / "endpoints.json"
    listing.write_text("[]")
    files = {"discovery__file": str(listing), "discovery__admin_file": str(tmp_path / "given.json")}
    async with (
        EnginePage.vllm() as one,
        EnginePage.vllm() as two,
        served(tmp_path, **files, discovery__grace_s=0.5, discovery__poll_s=0.1) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=TOKEN, timeout=60) as http,
    ):
        gateway.clients.up.clear()
        (first,) = (await http.get("/ready")).json()["endpoints"]
        given = await http.post("/admin/endpoints", json={"url": one.url, "id": "given"}, headers=ONCE)
        assert given.status_code == 201
        listing.write_text(json.dumps([{"url": two.url, "id": "listed"}, {"url": one.url}]))
        await all_workers_know(gateway, http, {first, "given", "listed"})
        rows = [(await http.get("/admin/endpoints", headers=ONCE)).json() for _ in range(CONNECTIONS)]
        assert {tuple(sorted((row["id"], *row["sources"]) for row in page)) for page in rows} == {
            tuple(sorted([(first, "config"), ("given", "admin", "file"), ("listed", "file")]))
        }
        metrics = (await http.get("/metrics")).text
        assert 'prefixgate_discovered_endpoints{source="file",state="up"} 1.0' in metrics
        taken = await http.delete("/admin/endpoints/given", headers=ONCE)
        assert taken.json()["still_listed_by"] == ["file"]
        listing.write_text("[]")
        await all_workers_know(gateway, http, {first})
