"""Limits and budgets of four gateway processes that share a Redis: as if there were one of them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import yaml
from sqlalchemy import select

from billing.reading import reading
from billing.schema import settlements
from gateway.demo.processes import clean_environment, started_process
from prefix_index import EmbeddedServer
from tests.gateway.limited import OTHER_KEY, Gate, keys_file, post, prices_file
from tests.gateway.scripted_engine import scripted_engine
from tests.until import until

REPLICAS = 4
CALLS = 200


@asynccontextmanager
async def replicas(
    folder: Path, engine: str, redis_url: str, number: int, **config: object
) -> AsyncIterator[list[str]]:
    """Gateway processes with one keys file, one price book and one Redis; each has a ledger of its own unless told."""
    async with AsyncExitStack() as stack:
        starting = []
        for at in range(number):
            tree = {
                "listen": {"port": 0},
                "backends": [{"url": engine, "id": "e0"}],
                "ledger": {"path": str(folder / f"ledger-{at}.db")},
                "index": {"redis_url": redis_url},
                "keys_file": str(folder / "keys.yaml"),
                "prices_file": str(folder / "prices.yaml"),
                **config,
            }
            file = folder / f"gateway-{at}.yaml"
            file.write_text(yaml.safe_dump(tree))
            command = (sys.executable, "-m", "gateway", "serve", "--config", str(file))
            starting.append(
                await stack.enter_async_context(
                    started_process(
                        f"gateway-{at}",
                        command,
                        log=folder / f"gateway-{at}.log",
                        environment=clean_environment(),
                        ready_within_s=60,
                    )
                )
            )
        yield list(await asyncio.gather(*(one.url() for one in starting)))


def charged_micro(ledger: str) -> int:
    """What the ledger has charged."""
    with reading(ledger) as connection:
        rows = connection.execute(select(settlements.c.charged_units, settlements.c.charged_pico)).fetchall()
    return sum(int(units) * 10**12 + int(pico) for units, pico in rows) // 10**6


async def test_m_200_parallel_calls_on_a_dollar_and_v_four_workers_do_not_multiply_limits(
    tmp_path: Path, postgres_url: str
) -> None:
    """M: of calls of 2 cents and a thousandth of a cent, all held in full, no more are let in than a dollar pays, and
    the one ledger of all four says so. V: a key of 30 requests a minute gets 30 of all workers together."""
    keys_file(
        tmp_path,
        key={"budgets": [{"amount": 1, "per": "month"}]},
        other={"limits": {"requests_per_minute": 30}},
    )
    prices_file(tmp_path)
    gate = Gate()
    async with (
        scripted_engine(gate.script) as engine,
        EmbeddedServer() as server,
        replicas(
            tmp_path,
            engine.url,
            server.url,
            REPLICAS,
            ledger={"url": postgres_url},
            quota={"deadline_ms": 10_000},  # one that is late is not away: each would grant its share alone
        ) as urls,
        httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None, keepalive_expiry=60)) as client,
    ):
        answers: list[httpx.Response] = []

        async def call(number: int) -> None:
            answers.append(await post(client, urls[number % REPLICAS]))

        async with asyncio.TaskGroup() as group:
            for number in range(CALLS):
                group.create_task(call(number))
            await until(lambda: gate.waiting + len(answers) >= CALLS, within_s=60)
            in_flight = gate.waiting
            gate.open()
        served = sum(one.status_code == 200 for one in answers)
        assert served == in_flight == 49
        assert sum(one.status_code == 429 for one in answers) == CALLS - served
        assert 980_000 <= charged_micro(postgres_url) <= 1_000_000
        others = await asyncio.gather(*(post(client, urls[n % REPLICAS], key=OTHER_KEY) for n in range(80)))
        refused = {one.text for one in others if one.status_code != 200}
        assert sorted(one.status_code for one in others) == [200] * 30 + [429] * 50, refused


async def test_y_what_a_killed_replica_held_frees_itself(tmp_path: Path) -> None:
    keys_file(tmp_path, limits={"concurrent": 1})
    prices_file(tmp_path)
    gate = Gate()
    async with (
        scripted_engine(gate.script) as engine,
        EmbeddedServer() as server,
        replicas(tmp_path, engine.url, server.url, 1, quota={"hold_s": 2}) as urls,
        httpx.AsyncClient(timeout=60) as client,
    ):
        file = tmp_path / "gateway-0.yaml"
        other = yaml.safe_load(file.read_text()) | {"ledger": {"path": str(tmp_path / "ledger-x.db")}}
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(other))
        async with AsyncExitStack() as stack:
            command = (sys.executable, "-m", "gateway", "serve", "--config", str(tmp_path / "x.yaml"))
            doomed = await stack.enter_async_context(
                started_process(
                    "doomed", command, log=tmp_path / "x.log", environment=clean_environment(), ready_within_s=60
                )
            )
            url = await doomed.url()
            lost = asyncio.ensure_future(post(client, url))
            await gate.reached(1)
            assert (await post(client, urls[0])).status_code == 429
            doomed.process.kill()
            await asyncio.gather(lost, return_exceptions=True)
        gate.open()
        await until(lambda: post(client, urls[0]), lambda found: found.status_code == 200)
