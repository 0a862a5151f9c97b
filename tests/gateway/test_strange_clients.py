"""Clients that write what engines read, and more: hidden control fields, empty objects, lax values, tricks."""

import json
from codecs import BOM_UTF8
from typing import Any

import httpx
import pytest

from backends.reference.model_files import ensure_model
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, answer_json, chat_stream, delta, scripted_engine
from tests.gateway.test_dialects import MESSAGES, NATIVE, RESPONSES, events, plays, two_tenants
from tests.hostile import reset_before_first_byte, stream

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


async def test_control_fields_are_taken_out_of_free_paths_behind_a_byte_order_mark(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    counts = NATIVE | {"/v1/messages/count_tokens"}
    async with scripted_engine(answer_json({"input_tokens": 7}), routes=counts) as engine:
        gateway = await start(start_gateway, engine.url)
        body = BOM_UTF8 + json.dumps({**MESSAGES, "priority": 9, "cache_salt": "mine"}).encode()
        await client.post(f"{gateway.url}/v1/messages/count_tokens", content=body)
    assert json.loads(engine.bodies[0]) == MESSAGES


UNREADABLE = [
    b'{"model":"m","x":NaN,"priority":9}',
    b'{"model":"m","x":"\xff","priority":9}',
    '{"priority":9}'.encode("utf-16"),
    b"[1]",
    b"x",
]


@pytest.mark.parametrize("body", UNREADABLE)
async def test_what_cannot_be_read_here_reaches_no_engine_on_a_free_path(
    start_gateway: StartGateway, client: httpx.AsyncClient, body: bytes
) -> None:
    counts = NATIVE | {"/v1/messages/count_tokens"}
    async with scripted_engine(answer_json({}), routes=counts) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/messages/count_tokens", content=body)
    assert answer.status_code == 400
    assert engine.bodies == []


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
@pytest.mark.parametrize("body", [b"{}", b'{"priority":1}', b"{ }"])
async def test_an_object_that_is_empty_or_becomes_so_stays_json(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str, body: bytes
) -> None:
    async with scripted_engine(answer_json({"data": []}), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url)
        await client.post(f"{gateway.url}{path}", content=body)
    assert set(json.loads(engine.bodies[0])) <= {"cache_salt"}


async def test_nothing_stands_twice_in_what_the_gateway_asks_for(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        for options in ({"include_usage": False}, {"include_usage": None, "continuous_usage_stats": True}):
            await client.post(
                f"{gateway.url}/v1/chat/completions", json={**CHAT, "stream": True, "stream_options": options}
            )
    assert [body.count(b'"include_usage"') for body in engine.bodies] == [1, 1]
    assert json.loads(engine.bodies[1])["stream_options"] == {"continuous_usage_stats": True, "include_usage": True}


@pytest.mark.parametrize("value", [10.0, -1, 0])
async def test_a_limit_that_engines_read_is_not_refused_here(
    start_gateway: StartGateway, client: httpx.AsyncClient, value: float
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json={**CHAT, "max_tokens": value})
    assert answer.status_code == 200
    assert json.loads(engine.bodies[0])["max_tokens"] == value


@pytest.mark.parametrize("value", [1, "true", "on", True])
async def test_a_stream_is_metered_however_laxly_it_was_asked_for(
    start_gateway: StartGateway, client: httpx.AsyncClient, value: object
) -> None:
    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json={**CHAT, "stream": value})
        (row,) = await settled(gateway, 1)
    assert json.loads(engine.bodies[0])["stream_options"] == {"include_usage": True}
    assert b'"usage"' not in answer.content
    assert row.prompt_tokens == 40


async def test_a_stream_of_messages_that_nobody_asked_for_arrives_whole(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(plays("vllm-0.32-messages-plain-stream.sse"), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        answer = await client.post(f"{gateway.url}/v1/messages", json=MESSAGES)
    assert "message_delta" in {event["type"] for event in events(answer.content)}


async def test_the_gateways_request_id_reaches_the_engine_whatever_connection_names(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        headers = {"connection": "x-request-id, x-mine", "x-mine": "1", "x-request-id": "2"}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=headers)
    head = engine.requests[0].partition(b"\r\n\r\n")[0].lower()
    assert f"x-request-id: {answer.headers['x-request-id']}".lower().encode() in head
    assert b"x-mine" not in head


@pytest.mark.parametrize(
    "extra",
    [
        {"background": True},
        {"conversation": "conv_1"},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"conversation": "conv_1", "previous_response_id": "resp_1"},
        {"background": True, "previous_response_id": "resp_1"},
        {"input": [{"type": "item_reference", "id": "msg_1"}], "tools": [{"type": "web_search"}]},
    ],
)
async def test_what_belongs_to_no_tenant_or_could_not_be_billed_is_refused_even_where_engines_have_it(
    start_gateway: StartGateway, client: httpx.AsyncClient, extra: dict[str, Any]
) -> None:
    async with scripted_engine(answer_json({}), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/responses", json={**RESPONSES, **extra})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(next(iter(extra)))
    assert engine.bodies == []


async def test_messages_need_a_limit_where_they_are_translated_as_the_api_says(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        body = {"model": "m", "messages": MESSAGES["messages"]}
        answer = await client.post(f"{gateway.url}/v1/messages", json=body)
        (row,) = await settled(gateway, 1)
    assert (answer.status_code, "max_tokens" in answer.json()["error"]["message"]) == (400, True)
    assert row.state == "rejected"
    assert engine.bodies == []


@pytest.mark.parametrize(("path", "body"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)])
async def test_a_translated_stream_that_stops_early_but_properly_says_so(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    async with scripted_engine(stream(delta("Hel"), delta("lo"))) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}{path}", json={**body, "stream": True})
        (row,) = await settled(gateway, 1)
    assert events(answer.content)[-1]["type"] == "error"
    assert row.state == "partial"


async def test_a_free_path_leaves_an_endpoint_that_fails(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    counts = NATIVE | {"/v1/messages/count_tokens"}
    async with (
        scripted_engine(reset_before_first_byte, routes=counts) as bad,
        scripted_engine(answer_json({"input_tokens": 7}), routes=counts) as good,
    ):
        gateway = await start(start_gateway, bad.url, good.url)
        answers = [await client.post(f"{gateway.url}/v1/messages/count_tokens", json=MESSAGES) for _ in range(4)]
    assert [answer.json() for answer in answers] == [{"input_tokens": 7}] * 4


async def test_an_id_that_an_engine_gives_twice_is_nobodys(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Any
) -> None:
    (one, two), keys = two_tenants(tmp_path)
    capture = "vllm-0.32-responses-plain-stream.sse"
    async with scripted_engine(plays(capture), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url, keys_file=keys)
        name = None
        for key in (one, two):
            headers = {"authorization": f"Bearer {key}"}
            answer = await client.post(
                f"{gateway.url}/v1/responses", json={**RESPONSES, "stream": True}, headers=headers
            )
            name = events(answer.content)[0]["response"]["id"]
        engine.pages[f"/v1/responses/{name}"] = {"id": name}
        found = [
            await client.get(f"{gateway.url}/v1/responses/{name}", headers={"authorization": f"Bearer {key}"})
            for key in (one, two)
        ]
    assert [answer.status_code for answer in found] == [404, 404]


async def test_two_share_groups_and_an_engine_that_cannot_keep_them_apart_are_told_of(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Any
) -> None:
    (key, _), keys = two_tenants(tmp_path)
    async with scripted_engine(answer_chat("Hi"), owner="llamacpp") as engine:
        gateway = await start(start_gateway, engine.url, keys_file=keys)
        headers = {"authorization": f"Bearer {key}"}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=headers)
        health = (await client.get(f"{gateway.url}/health")).json()
    assert (answer.status_code, "share groups" in answer.json()["error"]["message"]) == (503, True)
    assert "e0" in health["degraded"]["isolation"]


async def test_models_are_listed_and_found_in_the_form_of_the_client(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        anthropic = {"anthropic-version": "2023-06-01"}
        one = await client.get(f"{gateway.url}/v1/models/m")
        other = await client.get(f"{gateway.url}/v1/models/m", headers=anthropic)
        everyone = await client.get(f"{gateway.url}/v1/models", headers=anthropic)
        unknown = await client.get(f"{gateway.url}/v1/models/x/y")
    assert (one.json()["object"], other.json()["type"]) == ("model", "model")
    assert (everyone.json()["first_id"], everyone.json()["has_more"]) == ("m", False)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_local_tokens_are_believed_again_after_they_have_been_right_for_long_enough(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Any
) -> None:
    body = {"model": "m", "prompt": "one two three", "max_tokens": 1}
    right = 3

    def usage(count: int) -> dict[str, Any]:
        return {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 1}}

    scripts = [*[answer_json(usage(99))] * 8, answer_json(usage(right))]
    async with scripted_engine(*scripts) as engine:
        gateway = await start(
            start_gateway, engine.url, isolation="none", models={"m": {"tokenizer": str(ensure_model("tiny"))}}
        )
        sources = []
        for _ in range(18):
            answer = await client.post(f"{gateway.url}/v1/completions", json=body)
            sources.append(answer.headers["x-prefixgate-tokens"])
        await settled(gateway, 18)
        health = (await client.get(f"{gateway.url}/health")).json()
    assert sources == ["local"] * 8 + ["engine"] * 8 + ["local"] * 2
    assert "parity" not in health["degraded"]
