"""The same with SGLang, whose legs meet, and with TensorRT-LLM, whose first token comes from the context server."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.disaggregation.engines import Hall, backend, pair, sglang, trtllm_context, trtllm_generation
from tests.gateway.disaggregation.ledger import ask, attempts, split_row, started
from tests.gateway.scripted_engine import answer_json, scripted_engine
from tests.hostile import Behaviour, Peer, reset_before_first_byte

REFUSED = {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}}


@pytest.mark.parametrize("stream", [False, True])
async def test_both_legs_of_sglang_meet(stream: bool, start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    hall = Hall()
    async with pair(hall, sglang(hall, "prefill"), sglang(hall, "decode"), owner="sglang") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        for _ in range(2):
            answer = await ask(client, gateway, stream=stream)
            assert (answer.status_code, answer.headers["x-prefixgate-prefill-endpoint"]) == (200, "p"), answer.text
            assert "whale" in answer.text
        await settled(gateway, 2)
        endpoint, prefill_endpoint, first, second, cached, output, _ = split_row(gateway)
        assert (endpoint, prefill_endpoint, first, second, cached, output) == ("d", "p", 16, 16, 16, 2)
        assert attempts(gateway) == [("p", "prefilled"), ("d", "answered")] * 2
        assert gateway.metric("prefixgate_split_decisions_total", reason="needed") == 2
    assert sorted(map(sorted, hall.rooms.values())) == [["decode", "prefill"]] * 2


async def test_a_prefill_leg_that_dies_ends_the_decode_leg_and_another_takes_over(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with (
        pair(hall, sglang(hall, "prefill"), sglang(hall, "decode"), owner="sglang") as (prefill, decode),
        scripted_engine(reset_before_first_byte, owner="sglang") as dead,
    ):
        gateway = await start(
            start_gateway,
            backends=[
                {**backend(dead, "dead", "prefill"), "prefill_tokens_per_s": 1e9},
                backend(prefill, "p", "prefill"),
                backend(decode, "d", "decode"),
            ],
            scheduling__near_tie_s=0.0,
        )
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.headers["x-prefixgate-prefill-endpoint"]) == (200, "p")
        await settled(gateway, 1)
        assert attempts(gateway)[:2] == [("dead", "prefill_failed"), ("d", "prefill_failed")]
        assert attempts(gateway)[2:] == [("p", "prefilled"), ("d", "answered")]
        failed = [gateway.metric("prefixgate_attempts_failed_total", endpoint=one) for one in ("dead", "d")]
        assert failed == [1, 0], "it is no fault of who would have answered"


async def test_after_a_prefill_leg_that_died_a_request_waits_for_a_place_as_after_any_failure(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.gateway.disaggregation.engines.PATIENCE_S", 10.0)
    hall, another_waits, go_on = Hall(), asyncio.Event(), asyncio.Event()

    async def dies(peer: Peer) -> None:
        await another_waits.wait()
        await reset_before_first_byte(peer)

    async def lingers(peer: Peer) -> None:
        await go_on.wait()
        await sglang(hall, "prefill")(peer)

    async with (
        pair(hall, sglang(hall, "prefill"), sglang(hall, "decode"), owner="sglang") as (prefill, decode),
        scripted_engine(dies, lingers, owner="sglang") as fast,
        asyncio.timeout(30),
        asyncio.TaskGroup() as group,
    ):
        gateway = await start(
            start_gateway,
            backends=[
                {**backend(fast, "fast", "prefill"), "prefill_tokens_per_s": 1e9},
                backend(prefill, "p", "prefill"),
                backend(decode, "d", "decode", max_running=1),
            ],
            scheduling__near_tie_s=0.0,
        )
        first = group.create_task(ask(client, gateway))
        while not decode.requests:
            await asyncio.sleep(0.01)
        second = group.create_task(ask(client, gateway))
        while not await asyncio.to_thread(gateway.metric, "prefixgate_queue_requests"):
            await asyncio.sleep(0.01)
        another_waits.set()
        while len(decode.requests) < 2 or not await asyncio.to_thread(gateway.metric, "prefixgate_queue_requests"):
            await asyncio.sleep(0.01)
        assert (len(decode.requests), first.done(), second.done()) == (2, False, False)
        go_on.set()
        assert ((await first).status_code, (await second).status_code) == (200, 200)


@pytest.mark.parametrize("who", ["prefill", "decode"])
async def test_without_its_counterpart_a_request_to_sglang_is_refused_clearly(
    who: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with scripted_engine(sglang(hall, who), owner="sglang") as engine:
        gateway = await start(start_gateway, backends=[backend(engine, "one", who)])
        answer = await ask(client, gateway)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert engine.requests == []


async def test_what_both_engines_refuse_the_client_reads_in_their_words(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall, no = Hall(), answer_json(REFUSED, status=400)
    async with pair(hall, no, no, owner="sglang") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "too long")
        assert [row.state for row in await settled(gateway, 1)] == ["rejected"]


async def test_a_client_that_leaves_ends_both_legs(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    hall = Hall()

    async def waits(peer: Peer) -> None:
        await peer.read_request()
        await peer.hang()

    async with pair(hall, waits, waits, owner="sglang") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{gateway.url}/v1/chat/completions", json=BODY, timeout=0.3)
        await prefill.left.wait()
        await decode.left.wait()
        assert [row.state for row in await settled(gateway, 1)] == ["partial"]
        assert sorted(attempts(gateway)) == [("d", "cut"), ("p", "prefill_cut")]


BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9}


@pytest.mark.parametrize("stream", [False, True])
async def test_trtllm_goes_on_behind_the_context_servers_token(
    stream: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    scripts = trtllm_context(hall), trtllm_generation(hall)
    async with pair(hall, *scripts, owner="tensorrt_llm") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway, stream=stream)
        assert (answer.status_code, answer.headers["x-prefixgate-prefill-endpoint"]) == (200, "p"), answer.text
        await settled(gateway, 1)
        assert split_row(gateway)[:6] == ("d", "p", 16, 16, 16, 2)
    assert not hall.pinned


def ended(hall: Hall) -> Behaviour:
    del hall
    choice = {"index": 0, "message": {"content": "A"}, "finish_reason": "stop", "disaggregated_params": {"a": 1}}
    return answer_json({"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 1}})


async def test_an_answer_that_is_over_with_its_first_token_is_made_whole_by_one(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall, ended(hall), trtllm_generation(hall), owner="tensorrt_llm") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "d")
        await settled(gateway, 1)
        assert attempts(gateway) == [("p", "prefill_ended"), ("d", "answered")]
        assert gateway.metric("prefixgate_prefill_set_aside", endpoint="p") == 0
