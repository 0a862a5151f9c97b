"""Requests split between a prefill and a decode engine of vLLM, on real ports, from the client's bytes to the bill."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.commands.explain import headline
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.disaggregation.engines import Hall, answering, backend, pair, vllm_decode, vllm_prefill
from tests.gateway.disaggregation.ledger import ask, attempts, split_row, started
from tests.gateway.scripted_engine import answer_json, scripted_engine
from tests.hostile import Behaviour, Peer, hang, reset_before_first_byte
from tests.until import until


@pytest.mark.parametrize("stream", [False, True])
async def test_one_engine_computes_the_prompt_and_another_answers(
    stream: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway, stream=stream)
        assert answer.status_code == 200, answer.text
        assert gateway.metric("prefixgate_step_seconds_count", step="prefill") == 1
        assert "whale" in answer.text
        assert (answer.headers["x-prefixgate-endpoint"], answer.headers["x-prefixgate-prefill-endpoint"]) == ("d", "p")
        assert len(await settled(gateway, 1)) == 1
        assert split_row(gateway) == ("d", "p", 16, 16, 16, 2, "unpriced")
        assert attempts(gateway) == [("p", "prefilled"), ("d", "answered")]
        assert (hall.fetched, hall.pinned) == (["kept-0"], set())
        assert gateway.metric("prefixgate_split_decisions_total", reason="pays") == 1
        assert gateway.metric("prefixgate_prefill_legs_total", endpoint="p", outcome="handed") == 1
        assert gateway.metric("prefixgate_transfer_seconds_count", endpoint="d") == (1 if stream else 0)
        assert gateway.metric("prefixgate_tokens_total", endpoint="p", kind="cached") == 16
        assert gateway.metric("prefixgate_tokens_total", endpoint="d", kind="output") == 2
    assert prefill.requests[0].count(b"x-request-id: ") == 1
    ids = {
        line
        for request in (*prefill.requests, *decode.requests)
        for line in request.split(b"\r\n")
        if b"x-request-id" in line
    }
    assert len(ids) == 1


async def test_the_client_gets_the_decode_engines_bytes_and_the_engine_gets_the_clients(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    body = (
        b'{ "model":"m",\n "messages": [{"role":"user","content":"caf\\u00e9"}],'
        b' "n" : 1, "temperature":0.50, "stream":true}'
    )
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode, isolation="none")
        answer = await client.post(
            f"{gateway.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
        assert answer.headers["x-prefixgate-prefill-endpoint"] == "p"
    sent = decode.bodies[0]
    assert sent.startswith(body.rstrip(b"}"))
    assert b'"temperature":0.50' in prefill.bodies[0]
    assert b'"content":"caf\\u00e9"' in prefill.bodies[0]


async def test_the_next_turn_finds_its_prefix_where_prompts_are_computed(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall(prefill_cached=32)
    async with (
        scripted_engine(vllm_prefill(hall)) as one,
        scripted_engine(vllm_prefill(hall)) as other,
        scripted_engine(vllm_decode(hall)) as decode,
    ):
        gateway = await start(
            start_gateway,
            backends=[
                backend(one, "p0", "prefill"),
                backend(other, "p1", "prefill"),
                backend(decode, "d", "decode"),
            ],
            scheduling__near_tie_s=0.0,
        )
        places = [(await ask(client, gateway)).headers["x-prefixgate-prefill-endpoint"] for _ in range(4)]
        assert len(set(places)) == 1
        answer = await ask(client, gateway)
    assert answer.headers["x-prefixgate-cached-tokens"] == "32"
    assert answer.headers["x-prefixgate-reason"] == "prefix_hit"


async def test_what_is_reported_by_an_old_decode_engine_is_not_billed_and_agrees_with_its_version(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall(prefill_cached=16, decode_cached=39)
    async with pair(hall, version="0.30.1") as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway)
        assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 39}
        await settled(gateway, 1)
        assert split_row(gateway) == ("d", "p", 16, 39, 16, 2, "unpriced")


async def test_a_decode_engine_that_claims_what_its_version_does_not_report_is_disputed(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall(prefill_cached=16, decode_cached=39)
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        assert (await ask(client, gateway)).status_code == 200
        await settled(gateway, 1)
        assert split_row(gateway) == ("d", "p", 16, 39, 16, 2, "disputed,unpriced")
        assert gateway.metric("prefixgate_decode_reports_disputed_total", endpoint="d") == 1


async def test_a_prefill_engine_that_says_nothing_of_its_cache_leaves_the_discount_unreported(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall(prefill_cached=None, decode_cached=None)
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        await ask(client, gateway)
        await settled(gateway, 1)
        *_, cached, _, flags = split_row(gateway)
    assert (cached, flags) == (None, "unpriced,unreported")


async def test_a_prefill_endpoint_never_answers_a_client_alone(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, _):
        gateway = await start(start_gateway, backends=[backend(prefill, "p", "prefill")])
        answer = await ask(client, gateway)
        assert answer.status_code == 503
        assert prefill.requests == []


@pytest.mark.parametrize("fields", [{"n": 2}, {"max_tokens": 9, "n": 3, "stream": True}])
async def test_what_cannot_be_split_is_answered_by_one(
    fields: dict[str, Any], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway, **fields)
        assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "d")
        assert "x-prefixgate-prefill-endpoint" not in answer.headers
        assert gateway.metric("prefixgate_split_decisions_total", reason="not_splittable") == 1
    assert prefill.requests == []
    assert b"kv_transfer_params" not in decode.bodies[0]


async def test_a_fast_endpoint_is_not_helped(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode):
        fast = {**backend(decode, "d", "decode"), "prefill_tokens_per_s": 1e6}
        gateway = await start(start_gateway, backends=[backend(prefill, "p", "prefill"), fast])
        await ask(client, gateway)
        assert gateway.metric("prefixgate_split_decisions_total", reason="dearer") == 1
    assert prefill.requests == []


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (reset_before_first_byte, "failed"),
        (answer_json({"error": {"message": "dead"}}, status=500), "failed"),
        (answer_json({"error": {"message": "no"}}, status=400), "refused"),
        (hang, "failed"),
    ],
)
async def test_who_answers_does_it_alone_where_nobody_can_compute_the_prompt(
    failure: Behaviour, outcome: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall, failure) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode, limits__first_byte_s=0.5)
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "d")
        assert [row.state for row in await settled(gateway, 1)] == ["complete"]
        assert attempts(gateway) == [("p", f"prefill_{outcome}"), ("d", "answered")]
        assert split_row(gateway)[:3] == ("d", None, None)
        assert gateway.metric("prefixgate_split_decisions_total", reason="prefill_failed") == 1
        assert gateway.metric("prefixgate_prefill_legs_total", endpoint="p", outcome=outcome) == 1


async def test_another_prefill_endpoint_takes_over_from_one_that_died(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode), scripted_engine(reset_before_first_byte) as dead:
        first = {**backend(dead, "dead", "prefill"), "prefill_tokens_per_s": 1e9}
        gateway = await start(
            start_gateway,
            backends=[first, backend(prefill, "p", "prefill"), backend(decode, "d", "decode")],
            scheduling__near_tie_s=0.0,
        )
        answer = await ask(client, gateway)
        assert answer.headers["x-prefixgate-prefill-endpoint"] == "p"
        await settled(gateway, 1)
        assert attempts(gateway) == [("dead", "prefill_failed"), ("p", "prefilled"), ("d", "answered")]


async def test_an_engine_that_hands_nothing_over_is_named_and_left_alone_for_a_while(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall(hands_over=False)
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        for _ in range(3):
            assert (await ask(client, gateway)).status_code == 200
        assert gateway.metric("prefixgate_prefill_legs_total", endpoint="p", outcome="nothing_handed") == 1
        assert gateway.metric("prefixgate_prefill_set_aside", endpoint="p") == 1
        assert gateway.metric("prefixgate_split_decisions_total", reason="no_prefill_endpoint") == 2
    assert (len(prefill.requests), len(decode.requests)) == (1, 3)


async def test_who_cannot_go_on_with_what_it_was_handed_does_it_alone(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall, asked = Hall(), []

    async def refuses_blocks(body: dict[str, Any]) -> Any:
        asked.append("kv_transfer_params" in body)
        if asked[-1]:
            return 500, {"error": {"message": "transfer failed"}}
        return 200, {"choices": [{"index": 0, "message": {"content": "alone"}}], "usage": {"prompt_tokens": 40}}

    async with pair(hall, decode=answering(refuses_blocks)) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        answer = await ask(client, gateway)
        assert answer.json()["choices"][0]["message"]["content"] == "alone"
        await settled(gateway, 1)
        assert attempts(gateway) == [("p", "prefilled_in_vain"), ("d", "status_500"), ("d", "answered")]
        assert split_row(gateway)[1] is None
    assert asked == [True, False]


async def test_what_was_handed_over_goes_to_another_where_the_first_cannot_be_reached(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode):
        async with scripted_engine(vllm_decode(hall)) as gone:
            gateway = await start(
                start_gateway,
                backends=[
                    backend(prefill, "p", "prefill"),
                    backend(decode, "d", "decode"),
                    backend(gone, "gone", "decode"),
                ],
                poll_interval_s=60,
            )
        while ("gone", "DialFailed") not in attempts(gateway):  # of equals, chance chooses
            answer = await ask(client, gateway)
            assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "d")
            await asyncio.sleep(0)
        assert attempts(gateway)[-3:] == [("p", "prefilled"), ("gone", "DialFailed"), ("d", "answered")]
        assert len(hall.fetched) == len(prefill.requests)
        assert not hall.pinned


async def test_a_client_that_leaves_before_its_prompt_is_handed_over_pins_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall, began = Hall(), asyncio.Event()

    async def computes_for_long(peer: Peer) -> None:
        await peer.read_request()
        began.set()
        await peer.hang()

    async with pair(hall, computes_for_long) as (prefill, _):
        gateway = await started(start_gateway, prefill, _)
        with pytest.raises(httpx.ReadTimeout):
            await ask(client, gateway, timeout=0.3)
        assert began.is_set()
        await asyncio.wait_for(prefill.left.wait(), 10)
        rows = await settled(gateway, 1)
        assert [(row.state, row.cached_tokens, row.output_tokens) for row in rows] == [("partial", None, 0)]
        assert attempts(gateway) == [("p", "prefill_cut")]
        loads = gateway.http.get("/metrics").text
    assert 'prefixgate_prefill_legs_total{endpoint="p",outcome="cut"} 1' in loads


async def test_the_decision_explains_the_split(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Any
) -> None:
    hall = Hall()
    async with pair(hall) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode, admin_token_file=token_file)
        answer = await ask(client, gateway)
        headers = {"authorization": "Bearer letmein"}
        request_id = answer.headers["x-request-id"]
        told = (await client.get(f"{gateway.url}/admin/requests/{request_id}", headers=headers)).json()
        roles = (await client.get(f"{gateway.url}/admin/disaggregation", headers=headers)).json()
        rows = (await client.get(f"{gateway.url}/admin/endpoints", headers=headers)).json()
    assert told["split"]["prefill_endpoint"] == "p"
    assert told["split"]["reason"] == "pays"
    assert told["split"]["split_cost_s"] < told["split"]["unsplit_cost_s"]
    assert told["filtered"] == {"p": "prefills"}
    assert roles["roles"] == {"p": "prefill", "d": "decode"}
    assert {row["id"]: row["role"] for row in rows} == {"p": "prefill", "d": "decode"}
    assert "p computes the prompt, which saves" in told["why"]
    [line] = [line for line in headline(told) if line.startswith("prompt computed")]
    assert line.startswith("prompt computed at p, pays: 0.0")


async def test_roles_of_a_file_count_and_change_with_it(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    hall, listing = Hall(), tmp_path / "endpoints.json"
    async with pair(hall) as (prefill, decode):
        listing.write_text(json.dumps([backend(prefill, "p", "prefill"), backend(decode, "d", "decode")]))
        gateway = await start(start_gateway, discovery__file=listing, discovery__poll_s=0.02)
        assert (await ask(client, gateway)).headers["x-prefixgate-prefill-endpoint"] == "p"
        listing.write_text(json.dumps([backend(prefill, "p", "prefill"), backend(decode, "d", "both")]))
        answer = await until(
            lambda: ask(client, gateway), lambda answer: "x-prefixgate-prefill-endpoint" not in answer.headers
        )
        assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "d")


async def test_who_computes_the_prompt_is_told_how_urgent_it_is_as_who_answers_is(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with pair(Hall()) as (prefill, decode):
        gateway = await start(
            start_gateway,
            backends=[
                backend(prefill, "p", "prefill", pass_priority=True, max_running=8),
                backend(decode, "d", "decode", pass_priority=True, max_running=8),
            ],
            queue__classes=[{"name": "usual"}, {"name": "batch", "service_tiers": ["flex"]}],
        )
        answer = await ask(client, gateway, service_tier="flex")
        assert answer.headers["x-prefixgate-prefill-endpoint"] == "p"
    assert [json.loads(one.bodies[0])["priority"] for one in (prefill, decode)] == [1, 1]
