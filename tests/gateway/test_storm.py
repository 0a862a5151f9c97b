"""Many requests at once that fail, are cut, or are answered with nonsense: nothing of them is left behind."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends import InFlight
from gateway.app import Gateway
from gateway.pipeline import Pipeline
from gateway.pipeline_parts import Parts
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import (
    METRICS,
    ScriptedEngine,
    answer_chat,
    chat_stream,
    delta,
    event,
    scripted_engine,
)
from tests.hostile import Behaviour, close_before_first_byte, hang, raw, reset_before_first_byte, stream
from tests.until import until

NONSENSE: list[dict[str, Any]] = [
    {"prompt_tokens": -5, "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": -(10**18)}},
    {"prompt_tokens": 10**400, "completion_tokens": 10**400, "prompt_tokens_details": {"cached_tokens": 10**399}},
    {"prompt_tokens": 2**31 - 1, "completion_tokens": 2**31 - 1, "prompt_tokens_details": {"cached_tokens": 0}},
    {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 2**31 - 1}},
    {"prompt_tokens": 40.5, "completion_tokens": "2", "prompt_tokens_details": {"cached_tokens": True}},
    {"prompt_tokens": float("nan"), "completion_tokens": float("inf"), "prompt_tokens_details": []},
]


def scripts(rng: random.Random) -> list[Behaviour]:
    """Ways to answer, of which most are none."""
    found = [
        reset_before_first_byte,
        close_before_first_byte,
        hang,
        raw(b"SSH-2.0\r\n"),
        stream(delta("H"), end=False),
        stream(delta("H"), event({"error": {"message": "out of memory", "code": 500}})),
        stream(*chat_stream("H", "i", "!", "!", "!")),
        *(answer_chat("Hi", usage) for usage in NONSENSE),
        *(stream(*chat_stream("H", "i", "!", "!", "!", usage=usage)) for usage in NONSENSE),
    ] * 12
    rng.shuffle(found)
    return found


def parts_of(gateway: RunningGateway) -> Parts:
    """The objects behind a gateway that runs in a thread, to look at."""
    app = gateway.server.config.app
    assert isinstance(app, Gateway)
    assert app._edge is not None
    pipeline = app._edge._parts.pipeline
    assert isinstance(pipeline, Pipeline)
    return pipeline._parts


def left(gateway: RunningGateway) -> dict[str, object]:
    """What is still counted as under way, everywhere where it is counted; nothing where nothing is."""
    parts = parts_of(gateway)
    counted: dict[str, object] = {
        f"in flight at {endpoint.id}": count
        for endpoint in parts.fleet.snapshot()
        if (count := parts.fleet.in_flight(endpoint.id)) != InFlight()
    }
    for name, line in parts.perf._lines.items():
        if line.waiting or line.waiting_tokens:
            counted[f"prefills at {name}"] = (line.waiting, line.waiting_tokens)
    if parts.receipts._under_way:
        counted["receipts"] = len(parts.receipts._under_way)
    for shard in parts.index._shards:
        if shard._loads.own:
            counted["published loads"] = dict(shard._loads.own)
    return counted


async def one_request(client: httpx.AsyncClient, gateway: RunningGateway, number: int, patience_s: float) -> str | None:
    """A request of a client that may leave; its id, where there was an answer."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": f"Where is well {number % 7}?"}],
        "stream": number % 3 != 0,
        "max_tokens": (None, 1, 2**62)[number % 3],
    }
    try:
        async with asyncio.timeout(patience_s):
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body)
            return answer.headers["x-request-id"]
    except (TimeoutError, httpx.HTTPError):
        return None


async def restarts(engines: list[ScriptedEngine], until: asyncio.Event) -> None:
    """Now and then one of the engines is another one."""
    started = 1795961218
    while not until.is_set():
        started += 1
        engines[started % len(engines)].metrics = METRICS.replace(b"1795961218.5", b"%d.5" % started)
        await asyncio.sleep(0.15)


@pytest.mark.parametrize("policy", [{"policy": "prefix"}, {"policy": "prefix", "observe": "random"}])
async def test_after_a_storm_of_failures_and_cut_requests_nothing_counts_as_under_way(
    policy: dict[str, str], start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    rng = random.Random(1)
    async with scripted_engine(*scripts(rng)) as a, scripted_engine(*scripts(rng)) as b, scripted_engine(hang) as c:
        engines = [a, b, c]
        gateway = await start(
            start_gateway,
            *(engine.url for engine in engines),
            admin_token_file=token_file,
            limits__first_byte_s=0.4,
            limits__idle_s=0.4,
            scheduling__prewarm_prefixes=4,
            **{f"scheduling__{name}": value for name, value in policy.items()},
        )
        over, ids, seats = asyncio.Event(), list[str | None](), asyncio.Semaphore(24)

        async def seated(number: int) -> None:
            async with seats:
                ids.append(await one_request(client, gateway, number, rng.choice([0.01, 0.05, 0.3, 5.0])))

        async with asyncio.TaskGroup() as group:
            restarting = group.create_task(restarts(engines, over))
            async with asyncio.TaskGroup() as clients:
                for number in range(240):
                    clients.create_task(seated(number))
            over.set()
            await restarting
        await until(lambda: not left(gateway))
        known = 0
        for request_id in filter(None, ids):
            found = await client.get(
                f"{gateway.url}/admin/requests/{request_id}", headers={"authorization": "Bearer letmein"}
            )
            assert found.status_code in (200, 404)
            known += found.status_code == 200
    assert known > 20
    for endpoint in ("e0", "e1"):
        assert 0 < gateway.metric("prefixgate_perf_prefill_tokens_per_second", endpoint=endpoint) < 1e10
