"""Two workers serve as one gateway: one ledger, one index; one that is killed takes nothing with it."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from bench.crash import End
from gateway.team_admin import SHARING
from tests.gateway.workers.served import PATIENCE_S, Served, served
from tests.gateway.workers.test_metrics_of_all import value

pytestmark = pytest.mark.timeout(300)

CONNECTIONS = 12
"""Enough that both workers have one, but for a chance of 1 in 2048."""


async def any_worker_answers_for_all(gateway: Served, http: httpx.AsyncClient) -> None:
    """Asked over connections of their own, some of which each worker has."""
    gateway.clients.up.clear()
    seen = [call for call in gateway.clients.seen if call.end is End.SERVED]
    once = {"connection": "close"}
    answers = [await http.get("/health", headers=once) for _ in range(CONNECTIONS)]
    assert all(answer.json()["workers"] == {"alive": 2, "wanted": 2} for answer in answers)
    for call in seen[:CONNECTIONS]:
        found = await http.get(f"/admin/requests/{call.request_id}", headers=once)
        assert found.json()["request_id"] == call.request_id
    paths = (await http.get("/admin/openapi.json")).json()["paths"]
    pages = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert pages - set(SHARING) == set()
    for draining in ("true", "false"):
        await http.post("/admin/endpoints/known/drain", params={"draining": draining}, headers=once)
        rows = [(await http.get("/admin/endpoints", headers=once)).json()[0] for _ in range(CONNECTIONS)]
        assert {row["draining"] for row in rows} == {draining == "true"}
    metrics = await http.get("/metrics", headers=once)
    watched = {(await http.get("/admin/lint", headers=once)).json()["requests"] for _ in range(CONNECTIONS)}
    assert len(watched) == 1
    assert watched.pop() >= len(seen)
    gateway.clients.up.set()
    assert value(metrics.content, "prefixgate_requests_total", state="complete") >= len(seen)
    assert value(metrics.content, "prefixgate_workers", state="alive") == 2


async def test_a_reload_under_load_fails_no_request(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await gateway.answers(30)
        gateway.change(log_level="loud")
        gateway.signal(signal.SIGHUP)
        (refused,) = await gateway.until_logged("the configuration cannot be used, the one before stays in force")
        assert refused["why"].startswith("log_level: ")
        port = int(gateway.url.rpartition(":")[2])
        gateway.change(log_level="info", scheduling__policy="round_robin", listen__port=port + 1)
        gateway.signal(signal.SIGHUP)
        (kept,) = await gateway.until_logged("only a restart takes over what was changed")
        assert kept["keys"] == ["listen"]
        await gateway.until_logged("the configuration was taken over")
        assert [line["policy"] for line in gateway.logged("starting")] == ["prefix"] * 2 + ["round_robin"] * 2
        assert [line["slot"] for line in gateway.logged("worker ready")[2:]] == [0, 1]
        await gateway.answers(30)
        gateway.clients.up.clear()
        await asyncio.wait_for(gateway.member.stop(), PATIENCE_S)
        assert gateway.logged("worker died") == []
        assert gateway.logged("stopped")[0]["workers"] == [0, 0]
    found = gateway.audit()
    assert set(found.calls) == {End.SERVED, End.LEFT}
    assert (found.missing, found.twice, found.wrong, found.left_open) == ([], [], [], 0)
    assert set(found.rows) <= {"complete", "partial"}


async def test_a_worker_that_is_killed_and_then_the_supervisor_lose_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        await gateway.answers(30)
        async with httpx.AsyncClient(base_url=gateway.url, headers={"authorization": "Bearer letmein"}) as http:
            await any_worker_answers_for_all(gateway, http)
        first, _ = await gateway.until_logged("worker ready", 2)
        os.kill(first["pid"], signal.SIGKILL)
        await gateway.answers(30)
        (died,) = await gateway.until_logged("worker died")
        assert (died["pid"], died["status"]) == (first["pid"], -signal.SIGKILL)
        *_, successor = await gateway.until_logged("worker ready", 3)
        assert successor["slot"] == first["slot"]
        workers = [line["pid"] for line in gateway.logged("worker ready")]
        await gateway.member.kill()
        await gateway.start()  # on the same address, and the same ledger
        await gateway.answers(30)
        await all_gone(workers)
        gateway.clients.up.clear()
        await asyncio.wait_for(gateway.member.stop(), PATIENCE_S)
        assert gateway.logged("stopped")[0]["workers"] == [0, 0]
    found = gateway.audit()
    assert (found.missing, found.twice, found.wrong, found.left_open) == ([], [], [], 0)
    assert set(found.rows) <= {"complete", "partial", "interrupted", "failed"}


async def all_gone(pids: list[int]) -> None:
    """Wait until none of these processes is there."""
    async with asyncio.timeout(PATIENCE_S):
        for pid in pids:
            while is_there(pid):
                await asyncio.sleep(0.05)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
