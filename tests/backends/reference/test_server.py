"""The HTTP surface on a real port: shapes, errors, streams, the key, and clients that leave."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import httpx
import openai
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.types import EngineConfig
from backends.reference.weights import ModelWeights
from tests.until import until

Json = dict[str, object]
MESSAGES = [
    {"role": "system", "content": "You keep the shelves of a small library and answer with the shelf's number only."},
    {"role": "user", "content": "Where are the books on gravity?"},
]
CHAT: Json = {"model": "tiny", "messages": MESSAGES, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
TEXT: Json = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


async def post(client: httpx.AsyncClient, path: str, body: object, status: int = 200) -> httpx.Response:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer


async def events(client: httpx.AsyncClient, path: str, body: Json) -> list[str]:
    async with client.stream("POST", path, json=body | {"stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [line.removeprefix("data: ") async for line in answer.aiter_lines() if line]


async def metric(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


async def eventually(condition: Callable[[], bool]) -> None:
    """Each look waits for the engine's step that runs, in a thread, so that it does not block the loop."""
    await until(lambda: asyncio.to_thread(condition))


ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}'


def is_idle(served: RunningEngine) -> bool:
    stats = served.stats()
    return (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)


async def test_a_chat_answer_has_the_shape_of_vllms(shared_client: httpx.AsyncClient) -> None:
    body = (await post(shared_client, "/v1/chat/completions", CHAT)).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    [choice] = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert (choice["finish_reason"], choice["stop_reason"], choice["index"]) == ("length", None, 0)
    usage = body["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0


async def test_a_repeated_prompt_reports_what_the_cache_supplied(client: httpx.AsyncClient) -> None:
    cold = (await post(client, "/v1/chat/completions", CHAT)).json()
    warm = (await post(client, "/v1/chat/completions", CHAT)).json()
    prompt_tokens = cold["usage"]["prompt_tokens"]
    assert warm["choices"] == cold["choices"]
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == (prompt_tokens - 1) // 16 * 16 > 0
    assert cold["usage"]["prompt_tokens_details"]["created_cache_tokens"] == prompt_tokens // 16 * 16
    assert warm["usage"]["prompt_tokens_details"]["created_cache_tokens"] == 0


async def test_usage_and_metrics_agree(client: httpx.AsyncClient) -> None:
    receipts = [(await post(client, "/v1/chat/completions", CHAT)).json()["usage"] for _ in range(3)]
    receipts.append((await post(client, "/v1/completions", TEXT)).json()["usage"])
    cached = sum(one["prompt_tokens_details"]["cached_tokens"] for one in receipts)
    prompt = sum(one["prompt_tokens"] for one in receipts)
    assert await metric(client, "vllm:prefix_cache_hits_total") == cached > 0
    assert await metric(client, "vllm:prefix_cache_queries_total") == prompt
    assert await metric(client, "vllm:prompt_tokens_total") == prompt
    assert await metric(client, "vllm:generation_tokens_total") == 20
    assert await metric(client, "vllm:request_success_total") == 4
    assert await metric(client, "vllm:request_prefill_time_seconds_count") == 4
    assert await metric(client, "vllm:request_prefill_time_seconds_sum") > 0
    assert await metric(client, "vllm:inter_token_latency_seconds_count") == 16


async def test_a_stream_carries_the_same_text_and_ends_with_done(shared_client: httpx.AsyncClient) -> None:
    whole = (await post(shared_client, "/v1/chat/completions", CHAT)).json()
    lines = await events(shared_client, "/v1/chat/completions", CHAT)
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["length"]
    assert all("usage" not in chunk for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(client: httpx.AsyncClient) -> None:
    body = CHAT | {"stream_options": {"include_usage": True}}
    *chunks, last = [json.loads(line) for line in (await events(client, "/v1/chat/completions", body))[:-1]]
    assert all("usage" not in chunk for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_running_usage_comes_with_every_chunk_when_asked_for(shared_client: httpx.AsyncClient) -> None:
    body = CHAT | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chunks = [json.loads(line) for line in (await events(shared_client, "/v1/chat/completions", body))[:-1]]
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 4, 5, 5]
    assert ["prompt_tokens_details" in chunk["usage"] for chunk in chunks] == [False] * 6 + [True]


async def test_text_completions_take_strings_and_token_ids(shared_client: httpx.AsyncClient) -> None:
    tokens = (await post(shared_client, "/tokenize", {"prompt": TEXT["prompt"]})).json()["tokens"]
    prompts: list[object] = [TEXT["prompt"], [TEXT["prompt"]], tokens, [tokens]]
    bodies = [(await post(shared_client, "/v1/completions", TEXT | {"prompt": prompt})).json() for prompt in prompts]
    assert {body["object"] for body in bodies} == {"text_completion"}
    assert len({body["choices"][0]["text"] for body in bodies}) == 1
    streamed = [json.loads(line) for line in (await events(shared_client, "/v1/completions", TEXT))[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == bodies[0]["choices"][0]["text"]


async def test_text_completions_default_to_sixteen_tokens_and_chats_to_all_that_fit(client: httpx.AsyncClient) -> None:
    text = {key: value for key, value in TEXT.items() if key != "max_tokens"}
    assert (await post(client, "/v1/completions", text)).json()["usage"]["completion_tokens"] == 16
    chat = {key: value for key, value in CHAT.items() if key != "max_tokens"}
    usage = (await post(client, "/v1/chat/completions", chat)).json()["usage"]
    assert usage["total_tokens"] == 64 * 16


async def test_token_ids_are_returned_when_asked_for(shared_client: httpx.AsyncClient) -> None:
    body = (await post(shared_client, "/v1/chat/completions", CHAT | {"return_token_ids": True})).json()
    tokenized = (await post(shared_client, "/tokenize", {"messages": MESSAGES})).json()
    assert body["prompt_token_ids"] == tokenized["tokens"]
    assert len(body["choices"][0]["token_ids"]) == 5
    lines = (await events(shared_client, "/v1/chat/completions", CHAT | {"return_token_ids": True}))[:-1]
    first, *rest = [json.loads(line) for line in lines]
    assert first["prompt_token_ids"] == tokenized["tokens"]
    streamed = [token for chunk in rest for token in chunk["choices"][0]["token_ids"]]
    assert streamed == body["choices"][0]["token_ids"]


async def test_tokenize_agrees_with_what_a_request_is_billed(shared_client: httpx.AsyncClient) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    for extra in ({}, {"tools": tools}, {"add_generation_prompt": False}):
        tokenized = (await post(shared_client, "/tokenize", {"messages": MESSAGES} | extra)).json()
        usage = (await post(shared_client, "/v1/chat/completions", CHAT | extra)).json()["usage"]
        assert tokenized["count"] == len(tokenized["tokens"]) == usage["prompt_tokens"]
        assert tokenized["max_model_len"] == 64 * 16


async def test_tokenize_and_detokenize_are_inverse(shared_client: httpx.AsyncClient) -> None:
    text = "Grüße 🦜 123 <|im_end|>"
    tokenized = (await post(shared_client, "/tokenize", {"prompt": text, "return_token_strs": True})).json()
    assert len(tokenized["token_strs"]) == tokenized["count"]
    assert (await post(shared_client, "/detokenize", {"tokens": tokenized["tokens"]})).json() == {"prompt": text}
    await post(shared_client, "/tokenize", {}, 400)
    await post(shared_client, "/detokenize", {"tokens": [10**9]}, 400)


@pytest.mark.parametrize(
    ("path", "change", "status", "param"),
    [
        ("/v1/chat/completions", {"model": "nope"}, 404, "model"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": "hello"}, 400, "body.messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 7}]}, 400, "messages"),
        ("/v1/chat/completions", {"n": 2}, 400, "n"),
        ("/v1/chat/completions", {"max_tokens": 0}, 400, "max_tokens"),
        ("/v1/chat/completions", {"max_tokens": "many"}, 400, "body.max_tokens"),
        ("/v1/chat/completions", {"max_completion_tokens": 5000}, 400, "input_tokens"),
        ("/v1/chat/completions", {"temperature": -1}, 400, "temperature"),
        ("/v1/chat/completions", {"top_p": 0}, 400, "top_p"),
        ("/v1/chat/completions", {"top_k": -2}, 400, "top_k"),
        ("/v1/chat/completions", {"seed": 2**70}, 400, "seed"),
        ("/v1/chat/completions", {"stop": ["a", ""]}, 400, "stop"),
        ("/v1/chat/completions", {"cache_salt": ""}, 400, "cache_salt"),
        ("/v1/chat/completions", {"cache_salt": "a/b"}, 400, "cache_salt"),
        ("/v1/chat/completions", {"cache_salt": "x" * 129}, 400, "cache_salt"),
        (
            "/v1/chat/completions",
            {"stream_options": {"include_usage": "yes"}},
            400,
            "body.stream_options.include_usage",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user"}, 3]}, 400, "body.messages[1]"),
        ("/v1/completions", {"prompt": []}, 400, "prompt"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": ["a", ""]}, 400, "prompt"),
        ("/v1/completions", {"prompt": ["a", [1]]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [1, "b"]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [49_152]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [True]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [5] * 1024}, 400, "input_tokens"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    shared_client: httpx.AsyncClient, path: str, change: Json, status: int, param: str
) -> None:
    body = (CHAT if "chat" in path else TEXT) | change
    error = (await post(shared_client, path, body, status)).json()["error"]
    assert (error["param"], error["code"]) == (param, status)
    assert error["message"]
    assert error["type"] in ("BadRequestError", "NotFoundError", "Bad Request")


async def test_missing_messages_and_broken_json_are_refused(shared_client: httpx.AsyncClient) -> None:
    error = (await post(shared_client, "/v1/chat/completions", {"model": "tiny"}, 400)).json()["error"]
    assert error["param"] == "body.messages"
    await post(shared_client, "/v1/chat/completions", [1], 400)
    broken = await shared_client.post("/v1/chat/completions", content=b'{"model": ')
    assert broken.status_code == 400
    assert "JSON" in broken.json()["error"]["message"]
    deep = await shared_client.post("/v1/chat/completions", content=b'{"messages": ' + b"[" * 100_000)
    assert deep.status_code == 400
    latin = await shared_client.post("/v1/chat/completions", content=b'{"model": "\xff"}')
    assert latin.status_code == 400


async def test_unknown_routes_and_methods_answer_in_json(shared_client: httpx.AsyncClient) -> None:
    assert (await post(shared_client, "/v1/nothing", {}, 404)).json()["error"]["code"] == 404
    assert (await shared_client.get("/v1/chat/completions")).json()["error"]["code"] == 405


async def test_unknown_fields_are_ignored(shared_client: httpx.AsyncClient) -> None:
    await post(
        shared_client, "/v1/chat/completions", CHAT | {"user": "u", "prompt_cache_key": "k", "nonsense": {"a": 1}}
    )


async def test_nothing_given_means_the_default(shared_client: httpx.AsyncClient) -> None:
    body = CHAT | dict.fromkeys(("seed", "stop", "n", "top_p", "tools", "stream", "stream_options", "cache_salt"))
    await post(shared_client, "/v1/chat/completions", body)
    await post(shared_client, "/v1/completions", {key: value for key, value in TEXT.items() if key != "model"})


async def test_salts_isolate(client: httpx.AsyncClient) -> None:
    await post(client, "/v1/chat/completions", CHAT | {"cache_salt": "a"})
    for salt, hit in (("b", False), ("a", True), (None, False)):
        body = (await post(client, "/v1/chat/completions", CHAT | {"cache_salt": salt})).json()
        assert (body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) == hit


async def test_the_request_id_names_the_answer(shared_client: httpx.AsyncClient) -> None:
    answer = await shared_client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "abc"})
    assert answer.json()["id"] == "chatcmpl-abc"


async def test_the_model_list_says_whose_engine_it_is(shared_client: httpx.AsyncClient) -> None:
    [model] = (await shared_client.get("/v1/models")).json()["data"]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == ("tiny", "prefixgate-reference", 1024)
    assert (await shared_client.get("/version")).json().keys() == {"version"}


async def test_metrics_describe_the_cache(shared_client: httpx.AsyncClient) -> None:
    text = (await shared_client.get("/metrics")).text
    [info] = [line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")]
    for label in ('block_size="16"', 'num_gpu_blocks="64"', 'engine="0"'):
        assert label in info
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}' in text


async def test_reset_empties_the_cache(client: httpx.AsyncClient) -> None:
    await post(client, "/v1/chat/completions", CHAT)
    assert (await post(client, "/reset_prefix_cache", {})).json() == {"success": True}
    body = (await post(client, "/v1/chat/completions", CHAT)).json()
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_streaming_client_that_leaves_frees_its_blocks(
    served: RunningEngine, client: httpx.AsyncClient
) -> None:
    async with client.stream("POST", "/v1/chat/completions", json=CHAT | {"max_tokens": 900, "stream": True}) as answer:
        await anext(answer.aiter_lines())
    await eventually(lambda: is_idle(served))
    assert await metric(client, ABORTED) == 1


async def test_a_waiting_client_that_leaves_frees_its_blocks(served: RunningEngine, client: httpx.AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        call = group.create_task(client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 900}))
        await eventually(lambda: served.stats().running == 1)
        call.cancel()
    await eventually(lambda: is_idle(served))
    assert await metric(client, ABORTED) == 1


async def test_a_client_that_leaves_before_the_first_token_frees_its_place(micro: ModelWeights) -> None:
    with run_engine(EngineConfig(model="tiny", kv_blocks=64, max_num_seqs=1), micro) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=30) as client, asyncio.TaskGroup() as group:
            long = CHAT | {"max_tokens": 900, "stream": True}
            talker = group.create_task(events(client, "/v1/chat/completions", long))
            await eventually(lambda: served.stats().running == 1)
            waiting = group.create_task(events(client, "/v1/chat/completions", long))
            await eventually(lambda: served.stats().waiting == 1)
            waiting.cancel()
            await eventually(lambda: served.stats().waiting == 0)
            talker.cancel()
        await eventually(lambda: is_idle(served))


async def test_many_clients_at_once_are_all_served(micro: ModelWeights) -> None:
    config = EngineConfig(model="tiny", kv_blocks=16, max_num_seqs=4, max_batched_tokens=32)
    with run_engine(config, micro) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client, asyncio.TaskGroup() as group:
            bodies = [CHAT | {"messages": [*MESSAGES, {"role": "user", "content": f"{i} " * 20}]} for i in range(12)]
            calls = [
                group.create_task(post(client, "/v1/chat/completions", body | {"max_tokens": 40})) for body in bodies
            ]
        usages = [call.result().json()["usage"] for call in calls]
        assert all(usage["completion_tokens"] == 40 for usage in usages)
        assert served.stats().free_blocks == 16


async def test_the_key_guards_the_api_but_not_operations(micro: ModelWeights) -> None:
    with run_engine(replace(EngineConfig(model="tiny", kv_blocks=64), api_key="s3cret"), micro) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
                answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
                assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
            right = {"authorization": "Bearer s3cret"}
            assert (await client.post("/v1/chat/completions", json=CHAT, headers=right)).status_code == 200
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/metrics")).status_code == 200
        assert "s3cret" not in repr(served.engine.config)


async def test_a_stopped_engine_turns_health_and_refuses(served: RunningEngine, client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).status_code == 200
    async with client.stream("POST", "/v1/chat/completions", json=CHAT | {"max_tokens": 900, "stream": True}) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        await asyncio.to_thread(served.engine.stop)
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == 500
    assert (await client.get("/health")).status_code == 503
    await post(client, "/v1/chat/completions", CHAT, 503)
    await post(client, "/v1/chat/completions", CHAT | {"stream": True}, 503)


async def test_a_stopped_engine_ends_whole_answers_with_an_error(
    served: RunningEngine, client: httpx.AsyncClient
) -> None:
    async with asyncio.TaskGroup() as group:
        call = group.create_task(post(client, "/v1/chat/completions", CHAT | {"max_tokens": 900}, 500))
        await eventually(lambda: served.stats().running == 1)
        await asyncio.to_thread(served.engine.stop)
    assert call.result().json()["error"]["type"] == "InternalServerError"


async def test_a_client_that_leaves_inside_its_own_body_leaves_no_trace(
    served: RunningEngine, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    address = httpx.URL(served.url)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await post(client, "/v1/completions", TEXT)
    assert "Exception in ASGI application" not in caplog.text


async def test_the_official_client_understands_the_answers(served: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as client:
        stream = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Hi"}],
            max_completion_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        usages = [chunk.usage async for chunk in stream if chunk.usage]
        assert [usage.completion_tokens for usage in usages] == [4]
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hi"}])
