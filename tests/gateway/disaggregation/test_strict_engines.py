"""Pairs of simulated engines of three families, which refuse every wrong sequence, behind a gateway."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.simulated import Role
from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.disaggregation.ledger import attempts, split_row
from tests.until import until

FAST = 500.0
WORDS = "cite the shelf and do not guess " * 40
FAMILIES = ("vllm", "sglang", "trtllm")


@contextmanager
def fleet_of(dialect: str, *roles: Role, **more: Any) -> Iterator[list[SimulatedServer]]:
    """So many engines, by role."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                SimulatedServer(
                    ServerSpec(dialect=dialect, model="m", role=role, **{"speed": FAST, "lease_s": 30 * FAST, **more})
                )
            )
            for role in roles
        ]


def backends_of(servers: list[SimulatedServer]) -> list[dict[str, Any]]:
    """Entries of `backends`: p0, d1, ... where it is not believed that those that answer prefill as fast."""
    return [
        {
            "url": server.url,
            "id": f"{server.spec.role.value[0]}{number}",
            "role": server.spec.role.value,
            "prefill_tokens_per_s": 1e6 if server.spec.role is Role.PREFILL else 50.0,
            "bootstrap_port": server.side_port if server.spec.dialect == "sglang" else None,
        }
        for number, server in enumerate(servers)
    ]


def chat(words: str = WORDS, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": words}], "max_tokens": 6, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", FAMILIES)
async def test_a_pair_answers_as_one_engine_would_and_what_the_first_found_cached_is_billed(
    dialect: str, stream: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    with fleet_of(dialect, Role.PREFILL, Role.DECODE) as servers:
        gateway = await start(start_gateway, backends=backends_of(servers))
        url = f"{gateway.url}/v1/chat/completions"
        first = await client.post(url, json=chat(stream=stream))
        second = await client.post(url, json=chat(WORDS + "And what is a whale?", stream=stream))
        for answer in (first, second):
            assert (answer.status_code, answer.headers["x-prefixgate-prefill-endpoint"]) == (200, "p0"), answer.text
        assert len(await settled(gateway, 2)) == 2
        endpoint, prefill_endpoint, prefill_cached, decode_cached, cached, output, flags = split_row(gateway)
        assert (endpoint, prefill_endpoint, output, "disputed" in flags) == ("d1", "p0", 6, False)
        assert prefill_cached == cached == decode_cached
        assert cached > 100
        assert attempts(gateway) == [("p0", "prefilled"), ("d1", "answered")] * 2
        assert [one.part for one in servers[1].records()] == ["decode", "decode"]
        assert [one.part for one in servers[0].records()] == ["prefill", "prefill"]


async def test_before_031_the_decode_engines_word_is_another_and_no_dispute(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    with fleet_of("vllm", Role.PREFILL, Role.DECODE, version="0.23.0") as servers:
        gateway = await start(start_gateway, backends=backends_of(servers))
        for _ in range(2):  # of the first prompt it would not say that nothing was cached
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=chat())
            usage = answer.json()["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
        await settled(gateway, 2)
        _, _, prefill_cached, decode_cached, cached, _, flags = split_row(gateway)
    assert prefill_cached == cached > 100
    assert decode_cached == usage["prompt_tokens"] - 1
    assert "disputed" not in flags


async def test_prefixes_gather_where_prompts_are_computed(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)
    with fleet_of("vllm", *roles, speed=2.0) as servers:  # slow enough that a busy machine changes nothing
        known = [
            {**one, "prefill_tokens_per_s": 5_000.0} if one["role"] == "prefill" else one
            for one in backends_of(servers)
        ]
        gateway = await start(start_gateway, backends=known, scheduling__near_tie_s=0.0)
        places: dict[str, set[str]] = {}
        for turn in range(4):
            for who in ("ann", "ben", "cem"):
                words = f"{who} asks. {WORDS * 4}" + "Go on. " * turn
                answer = await client.post(f"{gateway.url}/v1/chat/completions", json=chat(words))
                assert answer.status_code == 200, answer.text
                places.setdefault(who, set()).add(answer.headers["x-prefixgate-prefill-endpoint"])
        rows = await settled(gateway, 12)
    assert {who: len(found) for who, found in places.items()} == {"ann": 1, "ben": 1, "cem": 1}
    assert sum(row.cached_tokens or 0 for row in rows) > 0.6 * sum(row.prompt_tokens or 0 for row in rows)


async def test_a_burst_of_long_prompts_within_one_first_token_is_spread_over_those_that_compute(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    with fleet_of("vllm", *[Role.PREFILL] * 3, *[Role.DECODE] * 2, speed=4.0) as servers:
        gateway = await start(start_gateway, backends=backends_of(servers))
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(
                    client.post(f"{gateway.url}/v1/chat/completions", json=chat(f"{n} asks. {WORDS * 3}"))
                )
                for n in range(24)
            ]
        assert {one.result().status_code for one in asked} == {200}
        prefills = [len([one for one in server.records() if one.part == "prefill"]) for server in servers[:3]]
        answers = [len([one for one in server.records() if one.part == "decode"]) for server in servers[3:]]
    assert (sum(prefills), sum(answers)) == (24, 24)
    assert max(prefills) <= 11, prefills
    assert max(answers) <= 16, answers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # who is killed closes nothing
@pytest.mark.parametrize("dialect", FAMILIES)
async def test_engines_of_both_kinds_die_under_load_and_every_answer_comes(
    dialect: str, start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    with fleet_of(dialect, *[Role.PREFILL] * 2, *[Role.DECODE] * 2, speed=5.0) as servers:
        gateway = await start(start_gateway, backends=backends_of(servers), admin_token_file=token_file)
        url, begun = f"{gateway.url}/v1/chat/completions", asyncio.Semaphore(8)

        async def ask(number: int) -> int:
            async with begun:
                answer = await client.post(url, json=chat(f"{number} asks. {WORDS}"), timeout=60)
                return answer.status_code

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(number)) for number in range(40)]
            for victim in (servers[0], servers[2]):
                await asyncio.wait(asked, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.to_thread(victim.kill)
        assert [one.result() for one in asked] == [200] * 40
        rows = await settled(gateway, 40)
        await until(lambda: not outstanding(gateway))
    assert {row.state for row in rows} == {"complete"}
    assert {row.output_tokens for row in rows} == {6}
    gc.collect()  # or another test would be told of what the killed have left open


async def test_what_clients_leave_behind_is_freed_at_who_computed_it_and_counts_nowhere(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    with fleet_of("vllm", Role.PREFILL, Role.DECODE, speed=10.0) as servers:
        gateway = await start(start_gateway, backends=backends_of(servers), admin_token_file=token_file)
        for number in range(12):
            with suppress(httpx.TimeoutException):
                await client.post(
                    f"{gateway.url}/v1/chat/completions", json=chat(f"{number} {WORDS}"), timeout=0.005 * (number + 1)
                )
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=chat())
        assert answer.status_code == 200
        await until(lambda: not (parked_at(servers[0]) or outstanding(gateway)))


def outstanding(gateway: RunningGateway) -> int:
    """Requests and tokens that are counted at any endpoint."""
    rows = gateway.http.get("/admin/endpoints", headers={"authorization": "Bearer letmein"}).json()
    return sum(row["in_flight_requests"] + row["in_flight_uncached_tokens"] for row in rows)


def parked_at(server: SimulatedServer) -> int:
    """Prompts whose blocks are pinned; leases are too long to have ended."""
    state: Any = server.state()
    assert state["expired"] == 0
    parked: int = state["parked"]
    return parked
