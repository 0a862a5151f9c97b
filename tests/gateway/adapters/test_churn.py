"""A thousand adapters that are registered, some of them asked for, and gone again leave nothing behind."""

import gc
import threading
from typing import Any

import httpx

from backends import EndpointSnapshot
from tests.gateway.adapters.serving import listing, vllm
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.until import until

ROUNDS, EACH, ASKED = 4, 250, 25


def names(round_: int) -> list[str]:
    """The adapters of one round."""
    return [f"adapter-{round_}-{number}" for number in range(EACH)]


async def listed(gateway: RunningGateway, client: httpx.AsyncClient, model: str) -> None:
    """Wait until the gateway knows of an adapter."""
    await until(lambda: client.get(f"{gateway.url}/v1/models/{model}"), lambda found: found.status_code == 200)


async def footprint(gateway: RunningGateway, client: httpx.AsyncClient) -> tuple[int, int, int]:
    """Series of metrics, threads, and snapshots of endpoints that somebody still holds."""
    page = (await client.get(f"{gateway.url}/metrics")).text
    series = sum(line.startswith("prefixgate_") for line in page.splitlines())
    gc.collect()
    return series, threading.active_count(), sum(type(one) is EndpointSnapshot for one in gc.get_objects())


async def test_a_thousand_adapters_come_and_go_and_memory_and_metrics_stay(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: Any
) -> None:
    base = {"id": "m", "owned_by": "vllm"}
    monkeypatch.setattr("gateway.planning.MOST_MODELS", 16)
    async with vllm(base) as engine:
        gateway = await start(start_gateway, engine.url, poll_interval_s=0.02)
        before: tuple[int, int, int] | None = None
        for round_ in range(ROUNDS):
            listing(engine, base, *({"id": name, "owned_by": "vllm", "parent": "m"} for name in names(round_)))
            await listed(gateway, client, names(round_)[0])
            for name in names(round_)[:ASKED]:
                body = {"model": name, "messages": [{"role": "user", "content": f"I am {name}."}], "max_tokens": 1}
                answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
            if round_ == 1:
                before = await footprint(gateway, client)
        after = await footprint(gateway, client)
        assert before is not None
        assert after[0] == before[0]
        assert after[1] <= before[1] + 2
        assert after[2] <= before[2] + 16
        gone = await client.post(f"{gateway.url}/v1/chat/completions", json={**body, "model": names(0)[0]})
        assert gone.status_code == 404
        assert gateway.metric("prefixgate_adapter_requests_total", residency="absent") == ROUNDS * ASKED
