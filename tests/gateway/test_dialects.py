"""Messages, responses and embeddings through the gateway: natively where the engine speaks them, else translated.

The engine plays what vLLM 0.32 and llama.cpp sent in truth (tests/data/captures); bytes are compared, and the ledger.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.edge.auth import new_key
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import answer_json, chat_stream, delta, scripted_engine
from tests.hostile import Behaviour, stream

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
MESSAGES: dict[str, Any] = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}
RESPONSES: dict[str, Any] = {"model": "m", "input": "Hi"}
NATIVE = frozenset({"/v1/messages", "/v1/responses", "/v1/embeddings"})


def recorded(name: str) -> bytes:
    return (CAPTURES / name).read_bytes()


def plays(name: str) -> Behaviour:
    return stream(recorded(name))


def events(content: bytes) -> list[dict[str, Any]]:
    """The data of each event, less the end mark of chats."""
    lines = (line.removeprefix(b"data: ") for line in content.splitlines() if line.startswith(b"data: {"))
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "body", "capture", "counts"),
    [
        ("/v1/messages", MESSAGES, "vllm-0.32-messages-plain-stream.sse", (39, 32, 8)),
        ("/v1/messages", MESSAGES, "llamacpp-11434-messages-plain-stream.sse", (39, 38, 8)),
        ("/v1/responses", RESPONSES, "vllm-0.32-responses-plain-stream.sse", (39, 32, 8)),
        ("/v1/responses", RESPONSES, "llamacpp-11434-responses-plain-stream.sse", (39, 38, 8)),
    ],
)
async def test_an_engine_that_speaks_the_dialect_gets_the_clients_bytes_and_its_answer_is_not_touched(
    start_gateway: StartGateway,
    client: httpx.AsyncClient,
    path: str,
    body: dict[str, Any],
    capture: str,
    counts: tuple[int, int, int],
) -> None:
    async with scripted_engine(plays(capture), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        sent = json.dumps({**body, "stream": True, "wild": {"a": 1.0}}, indent=1).encode()
        answer = await client.post(f"{gateway.url}{path}?beta=true", content=sent)
        (row,) = await settled(gateway, 1)
    assert answer.content == recorded(capture)
    assert engine.bodies == [sent]
    assert engine.requests[0].startswith(f"POST {path}?beta=true ".encode())
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == counts
    assert row.state == "complete"


@pytest.mark.parametrize(
    ("path", "body", "end"),
    [("/v1/messages", MESSAGES, "message_stop"), ("/v1/responses", RESPONSES, "response.completed")],
)
async def test_a_server_of_chats_serves_other_dialects_in_streams_too(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str, body: dict[str, Any], end: str
) -> None:
    async with scripted_engine(plays("vllm-0.32-chat-plain-stream.sse")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}{path}", json={**body, "stream": True})
        (row,) = await settled(gateway, 1)
    assert engine.requests[0].startswith(b"POST /v1/chat/completions ")
    assert answer.headers["content-type"].startswith("text/event-stream")
    last = events(answer.content)[-1]
    assert last["type"] == end
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (39, 32, 8)
    assert gateway.metric("prefixgate_requests_total", route=path) == 1


async def test_a_plain_answer_is_translated_whole_with_the_usage_in_the_clients_own_convention(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    chat = json.loads(recorded("llamacpp-11434-chat-plain.json"))
    async with scripted_engine(answer_json(chat)) as engine:
        gateway = await start(start_gateway, engine.url)
        message = (await client.post(f"{gateway.url}/v1/messages", json=MESSAGES)).json()
        response = (await client.post(f"{gateway.url}/v1/responses", json=RESPONSES)).json()
        rows = await settled(gateway, 2)
    cached = chat["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"] == rows[0].prompt_tokens
    assert message["usage"]["cache_read_input_tokens"] == cached == rows[0].cached_tokens
    assert response["usage"]["input_tokens"] == rows[1].prompt_tokens
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == rows[1].cached_tokens
    assert (rows[0].prompt_tokens, rows[0].cached_tokens) == (rows[1].prompt_tokens, rows[1].cached_tokens)


async def test_with_more_than_one_share_group_an_engine_of_unknown_version_gets_the_chat_whose_salt_it_heeds(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (key, _), keys = two_tenants(tmp_path)
    async with scripted_engine(plays("vllm-0.32-chat-plain-stream.sse"), routes=NATIVE, version="0.20.0") as engine:
        gateway = await start(start_gateway, engine.url, keys_file=keys)
        body = {**MESSAGES, "stream": True}
        answer = await client.post(f"{gateway.url}/v1/messages", json=body, headers={"x-api-key": key})
    assert answer.status_code == 200
    assert engine.requests[0].startswith(b"POST /v1/chat/completions ")
    assert b'"cache_salt"' in engine.bodies[0]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_errors_of_the_gateway_have_the_shape_of_the_clients_dialect(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str
) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}{path}", json={**MESSAGES, "model": "other"})
    assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (
        404,
        "error",
        "not_found_error",
    )


async def test_a_refusal_of_the_engine_keeps_its_words_in_the_clients_dialect(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    refusal = json.loads(recorded("vllm-0.32-err-chat-too-long.json"))
    async with scripted_engine(answer_json(refusal, status=400)) as engine:
        gateway = await start(start_gateway, engine.url)
        message = await client.post(f"{gateway.url}/v1/messages", json={**MESSAGES, "stream": True})
        response = await client.post(f"{gateway.url}/v1/responses", json=RESPONSES)
        rows = await settled(gateway, 2)
    words = refusal["error"]["message"]
    assert (message.status_code, message.json()["error"]) == (400, {"type": "invalid_request_error", "message": words})
    assert (response.status_code, response.json()["error"]["message"]) == (400, words)
    assert [row.state for row in rows] == ["rejected", "rejected"]


@pytest.mark.parametrize(("path", "body"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)])
async def test_a_stream_that_breaks_off_ends_with_an_error_of_the_dialect_and_no_end(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    async with scripted_engine(stream(delta("Hel"), delta("lo"), end=False)) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}{path}", json={**body, "stream": True})
        (row,) = await settled(gateway, 1)
    said = events(answer.content)
    assert said[-1]["type"] == "error"
    assert not {event["type"] for event in said} & {"message_stop", "response.completed"}
    assert row.state == "partial"
    assert row.output_tokens is not None


async def test_embeddings_pass_to_an_engine_that_has_them_and_are_recorded(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    vector = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3, "total_tokens": 3}}
    async with scripted_engine(answer_json(vector), routes=NATIVE) as able, scripted_engine(answer_json({})) as unable:
        gateway = await start(start_gateway, able.url, unable.url, isolation="none")
        body = {"model": "m", "input": ["a", "b"], "dimensions": 1}
        answer = await client.post(f"{gateway.url}/v1/embeddings", json=body)
        (row,) = await settled(gateway, 1)
    assert answer.json() == vector
    assert json.loads(able.bodies[0]) == body
    assert answer.headers["x-prefixgate-reason"] == "no_kv"
    assert (row.endpoint_id, row.prompt_tokens, row.cached_tokens) == ("e0", 3, None)


async def test_embeddings_are_not_found_where_no_engine_has_them(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/embeddings", json={"model": "m", "input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert engine.bodies == []


def two_tenants(folder: Path) -> tuple[tuple[str, str], Path]:
    """Two keys of two tenants, and the file that has them."""
    (one, one_digest), (two, two_digest) = new_key(), new_key()
    tenants = [
        {"id": name, "keys": [{"id": f"{name}-1", "sha256": digest}]}
        for name, digest in (("one", one_digest), ("two", two_digest))
    ]
    path = folder / "keys.yaml"
    path.write_text(json.dumps({"tenants": tenants}))
    return (one, two), path


async def test_a_kept_response_is_followed_for_its_tenant_and_does_not_exist_for_another(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (one, two), keys = two_tenants(tmp_path)
    capture = "vllm-0.32-responses-plain-stream.sse"
    name = events(recorded(capture))[0]["response"]["id"]
    async with (
        scripted_engine(plays(capture), routes=NATIVE) as keeper,
        scripted_engine(plays(capture), routes=NATIVE) as other,
    ):
        keeper.pages[f"/v1/responses/{name}"] = {"id": name}
        gateway = await start(start_gateway, keeper.url, other.url, keys_file=keys, scheduling__policy="round_robin")

        async def post(key: str, **fields: object) -> httpx.Response:
            body = {**RESPONSES, "stream": True, **fields}
            headers = {"authorization": f"Bearer {key}"}
            return await client.post(f"{gateway.url}/v1/responses", json=body, headers=headers)

        async def get(key: str) -> httpx.Response:
            path = f"{gateway.url}/v1/responses/{name}"
            return await client.get(path, headers={"authorization": f"Bearer {key}"})

        first = await post(one)
        assert first.headers["x-prefixgate-endpoint"] == "e0"
        for _ in range(3):
            again = await post(one, previous_response_id=name)
            assert again.headers["x-prefixgate-endpoint"] == "e0"
        stolen = await post(two, previous_response_id=name)
        mine, theirs = await get(one), await get(two)
    assert (mine.status_code, mine.json()) == (200, {"id": name})
    assert (theirs.status_code, stolen.status_code) == (404, 404)
    assert keeper.gets == [f"/v1/responses/{name}"]
    assert other.bodies == []


async def test_what_continues_a_response_is_refused_where_the_backends_keep_none(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        url = f"{gateway.url}/v1/responses"
        unknown = await client.post(url, json={**RESPONSES, "previous_response_id": "resp_1"})
        conversation = await client.post(url, json={**RESPONSES, "conversation": "conv_1"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "previous_response_id")
    assert (conversation.status_code, conversation.json()["error"]["param"]) == (400, "conversation")
    assert engine.bodies == []


async def test_what_only_some_backends_can_do_goes_to_them(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    search = {**RESPONSES, "tools": [{"type": "web_search"}], "stream": True}
    async with (
        scripted_engine(answer_json({})) as plain,
        scripted_engine(plays("vllm-0.32-responses-plain-stream.sse"), routes=NATIVE) as able,
    ):
        gateway = await start(start_gateway, plain.url, able.url, isolation="none", scheduling__policy="round_robin")
        answers = [await client.post(f"{gateway.url}/v1/responses", json=search) for _ in range(3)]
    assert [answer.headers["x-prefixgate-endpoint"] for answer in answers] == ["e1"] * 3
    assert plain.bodies == []


async def test_tokens_are_counted_here_where_no_engine_counts_them(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        body = {name: value for name, value in MESSAGES.items() if name != "max_tokens"}
        answer = await client.post(f"{gateway.url}/v1/messages/count_tokens", json=body)
    assert (answer.status_code, answer.json()) == (200, {"input_tokens": 40})  # its /tokenize always says 40


async def test_tokens_are_counted_by_an_engine_that_can(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    counts = NATIVE | {"/v1/messages/count_tokens"}
    async with scripted_engine(answer_json({"input_tokens": 7}), routes=counts) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/messages/count_tokens", json={**MESSAGES, "priority": 5})
        assert gateway.metric("prefixgate_requests_total") == 0
    assert answer.json() == {"input_tokens": 7}
    assert json.loads(engine.bodies[0]) == MESSAGES


async def test_a_metered_path_is_recorded_and_a_free_one_is_not(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    ranked = {"results": [], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    async with scripted_engine(answer_json(ranked)) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        free = await client.post(f"{gateway.url}/tokenize", json={"model": "m", "prompt": "Hi"})
        metered = await client.post(f"{gateway.url}/v1/rerank", json={"model": "m", "query": "q", "documents": ["d"]})
        (row,) = await settled(gateway, 1)
        assert gateway.metric("prefixgate_requests_total", route="/v1/rerank") == 1
    assert (free.status_code, free.json()["count"]) == (200, 40)
    assert (metered.json(), row.prompt_tokens) == (ranked, 9)


SHUT = [
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"),
    ("POST", "/reset_prefix_cache"),
    ("POST", "/flush_cache"),
    ("POST", "/sleep"),
    ("POST", "/wake_up"),
    ("POST", "/start_profile"),
    ("POST", "/slots/0"),
    ("POST", "/props"),
    ("GET", "/server_info"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/release_memory_occupation"),
    ("POST", "/update_weights_from_disk"),
    ("POST", "/collective_rpc"),
    ("POST", "/abort_request"),
    ("GET", "/v1/responses/..%2F..%2Fmetrics"),
    ("POST", "//tokenize"),
]


async def test_what_no_allow_list_opens_is_shut(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with scripted_engine(answer_json({})) as engine:
        gateway = await start(start_gateway, engine.url)
        answers = [await client.request(method, f"{gateway.url}{path}", json={"model": "m"}) for method, path in SHUT]
    assert {answer.status_code for answer in answers} == {404}
    assert engine.requests == []


async def test_the_reasons_sum_to_the_requests(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with scripted_engine(stream(*chat_stream("Hi")), routes=NATIVE) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        for path, body in (
            ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}),
            (
                "/v1/chat/completions",
                {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "chat_template": "x"},
            ),
            ("/v1/completions", {"model": "m", "prompt": ["a", "b"]}),
            ("/v1/embeddings", {"model": "m", "input": "a"}),
            ("/v1/messages", MESSAGES),
            ("/v1/responses", {**RESPONSES, "prompt": {"id": "p"}}),
        ):
            await client.post(f"{gateway.url}{path}", json={**body, "stream": True})
        await settled(gateway, 6)
        reasons = {
            reason: gateway.metric("prefixgate_reasons_total", reason=reason)
            for reason in ("engine_alters", "prompt_batch", "no_kv", "previous_response")
        }
        assert gateway.metric("prefixgate_reasons_total") == gateway.metric("prefixgate_requests_total") == 6
    assert set(reasons.values()) == {1}


async def test_a_request_that_names_no_model_means_the_only_one_there_is(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    answer = answer_json({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    async with scripted_engine(answer) as one, scripted_engine(answer, model="other") as other:
        alone = await start(start_gateway, one.url, isolation="none")
        together = await start(start_gateway, one.url, other.url, isolation="none")
        served = await client.post(f"{alone.url}/v1/chat/completions", json=chat)
        refused = await client.post(f"{together.url}/v1/chat/completions", json=chat)
    assert served.status_code == 200
    assert json.loads(one.bodies[0]) == chat
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
