"""Faults on real ports: each gets a right answer or a clear error, the ledger stays exact, nothing hangs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import (
    METRICS,
    USAGE,
    ScriptedEngine,
    answer_chat,
    answer_json,
    chat_stream,
    delta,
    event,
    scripted_engine,
)
from tests.hostile import (
    Behaviour,
    Peer,
    hang,
    raw,
    reset_before_first_byte,
    stream,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}]}
STREAM = {**CHAT, "stream": True}


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, body: dict[str, Any]) -> httpx.Response:
    return await client.post(f"{gateway.url}/v1/chat/completions", json=body)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return found


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (reset_before_first_byte, 502, "upstream_failed"),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), 502, "upstream_failed"),
        (hang, 504, "upstream_timeout"),
    ],
)
async def test_when_nobody_can_take_over_the_client_is_told_and_nothing_is_charged(
    failure: Behaviour, status: int, code: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(failure) as engine:
        gateway = await start(start_gateway, engine.url, limits__first_byte_s=0.3)
        answer = await ask(client, gateway, CHAT)
        assert answer.status_code == status
        assert error_of(answer)["code"] == code
        rows = await settled(gateway, 1)
    assert [(row.state, row.prompt_tokens) for row in rows] == [("failed", None)]
    assert "not_billable" in rows[0].flags


async def test_an_engines_last_5xx_is_passed_on_as_it_came(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({"error": {"message": "engine dead"}}, status=500)) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await ask(client, gateway, CHAT)
        assert (answer.status_code, answer.json()["error"]["message"]) == (500, "engine dead")
        assert [row.state for row in await settled(gateway, 1)] == ["failed"]


async def test_a_backend_that_is_down_at_the_start_is_a_clear_503_and_models_say_so(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    gateway = await start(start_gateway, "http://127.0.0.1:9")
    answer = await ask(client, gateway, CHAT)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "service_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert (await client.get(f"{gateway.url}/v1/models")).status_code == 503
    assert (await client.get(f"{gateway.url}/ready")).status_code == 503
    health = (await client.get(f"{gateway.url}/health")).json()
    assert health["status"] == "degraded"
    assert "e0" in health["degraded"]["endpoints"]


@pytest.mark.parametrize("end", ["closes", "resets", "falls silent"])
async def test_a_stream_that_breaks_off_ends_with_an_error_event_and_is_recorded_as_partial(
    end: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    words = delta("The") + delta(" books")
    seen = asyncio.Event()

    async def two_words(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(b"%x\r\n%s\r\n" % (len(words), words))
        await seen.wait()
        if end == "resets":
            peer.reset()
        elif end == "falls silent":
            await peer.hang()

    async with scripted_engine(two_words) as engine:
        gateway = await start(start_gateway, engine.url, limits__idle_s=0.3)
        text = b""
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=STREAM) as answer:
            async for chunk in answer.aiter_raw():
                text += chunk
                seen.set()
        rows = await settled(gateway, 1)
    assert text.startswith(words)
    assert b'"error"' in text
    assert text.endswith(b"data: [DONE]\n\n")
    assert [row.state for row in rows] == ["partial"]


def half_an_answer(size_bytes: int) -> Behaviour:
    """The beginning of a longer body, then silence."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n"
    return raw(head + b'{"choices":' + b" " * size_bytes)


async def test_a_plain_answer_that_breaks_off_is_cut_and_never_looks_whole(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(half_an_answer(size_bytes=2_000_000)) as engine:
        gateway = await start(start_gateway, engine.url, limits__idle_s=0.3)
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(client, gateway, CHAT)
        assert [row.state for row in await settled(gateway, 1)] == ["partial"]


async def test_a_plain_answer_that_breaks_off_before_anything_went_out_is_an_error_that_nobody_pays(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(half_an_answer(size_bytes=10)) as engine:
        gateway = await start(start_gateway, engine.url, limits__idle_s=0.3)
        answer = await ask(client, gateway, CHAT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert [row.state for row in await settled(gateway, 1)] == ["failed"]


async def test_broken_events_are_relayed_and_the_ledger_says_that_usage_is_unknown(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    broken = stream(b"data: {broken\n\n", b"event: odd\n: comment\n\n", b"no field at all\n\n", b"data: [DONE]\n\n")
    async with scripted_engine(broken) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await ask(client, gateway, STREAM)
        row = (await settled(gateway, 1))[0]
    assert answer.content == b"data: {broken\n\nevent: odd\n: comment\n\nno field at all\n\ndata: [DONE]\n\n"
    assert (row.state, row.cached_tokens) == ("complete", None)


async def test_usage_is_taken_out_for_clients_who_did_not_ask_and_left_in_for_those_who_did(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    whole = chat_stream("Hi", " there")
    async with scripted_engine(stream(*whole, trickle=True)) as engine:
        gateway = await start(start_gateway, engine.url)
        without = await ask(client, gateway, STREAM)
        with_usage = await ask(client, gateway, {**STREAM, "stream_options": {"include_usage": True}})
        rows = await settled(gateway, 2)
    assert without.content == b"".join([*whole[:2], whole[3]])
    assert with_usage.content == b"".join(whole)
    assert {(row.prompt_tokens, row.cached_tokens, row.output_tokens) for row in rows} == {(40, 32, 2)}


async def test_an_error_event_of_the_engine_is_passed_on_and_the_row_is_partial(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    failing = stream(delta("The"), event({"error": {"message": "out of memory", "code": 500}}), b"data: [DONE]\n\n")
    async with scripted_engine(failing) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await ask(client, gateway, STREAM)
        assert b"out of memory" in answer.content
        assert [row.state for row in await settled(gateway, 1)] == ["partial"]


BAD_BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "invalid_request"),
    (b'{"model": "m", "mess', 400, "invalid_request"),
    (b"\xff\xfe\x00", 400, "invalid_request"),
    (b'{"model": "m"}', 400, "invalid_request"),
    (b'{"model": 5, "messages": []}', 400, "invalid_request"),
    (b'{"model": "gpt-9", "messages": []}', 404, "model_not_found"),
    (b'{"model": "m", "messages": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_request"),
    (b'{"model": "m", "messages": [], "x": "' + b"y" * 200_000 + b'"}', 413, "body_too_large"),
]


async def test_bad_bodies_get_a_clear_error_and_change_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, limits__max_body_bytes=250_000)
        for body, status, code in BAD_BODIES:
            sent = body + b" " * 60_000 if status == 413 else body
            answer = await client.post(f"{gateway.url}/v1/chat/completions", content=sent)
            assert (answer.status_code, error_of(answer)["code"]) == (status, code), body[:60]
        assert engine.requests == []
        await ask(client, gateway, CHAT)
        assert len(await settled(gateway, 1)) == 1


async def test_a_body_without_a_length_is_bounded_too(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, limits__max_body_bytes=50_000)
        answer = await client.post(f"{gateway.url}/v1/chat/completions", content=endless())
        assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/load_lora_adapter", 404, "not_found"),
        ("POST", "/reset_prefix_cache", 404, "not_found"),
        ("GET", "/v1/chat/completions/../../metrics", 404, "not_found"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/nowhere", 404, "not_found"),
    ],
)
async def test_an_engines_control_paths_cannot_be_reached(
    method: str, path: str, status: int, code: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.request(method, httpx.URL(gateway.url).copy_with(raw_path=path.encode()))
        assert (answer.status_code, error_of(answer)["code"]) == (status, code)
        assert engine.requests == []


async def test_the_body_reaches_the_engine_byte_for_byte_but_for_the_salt(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    body = (
        b'{ "messages":[{"role":"user","content":"caf\\u00e9 \xe6\x97\xa5"}],\n\t"temperature" : 1.0e0,'
        b' "tools":[{"type":"function","function":{"name":"z","parameters":{"b":1,"a":2}}}], "model":"m" }'
    )
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        await client.post(
            f"{gateway.url}/v1/chat/completions?debug=1",
            content=body,
            headers={"authorization": "Bearer secret-of-the-client", "cookie": "a=b"},
        )
        sent = engine.requests[0]
        assert engine.bodies[0].startswith(body[:-2])
        assert engine.bodies[0][len(body) - 1 :].startswith(b',"cache_salt":"')
        assert sent.startswith(b"POST /v1/chat/completions?debug=1 ")
        assert b"secret-of-the-client" not in sent
        assert b"cookie" not in sent.lower()


async def test_two_endpoints_share_the_load_of_a_burst(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    engines: list[ScriptedEngine] = []
    async with scripted_engine(answer_chat("a")) as one, scripted_engine(answer_chat("b")) as two:
        engines += [one, two]
        gateway = await start(start_gateway, one.url, two.url)
        await asyncio.gather(*(ask(client, gateway, CHAT) for _ in range(60)))
        assert len(await settled(gateway, 60)) == 60
    assert sum(len(engine.requests) for engine in engines) == 60


async def test_a_client_that_reads_slowly_does_not_make_the_endpoint_look_slow(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    long = chat_stream(*["x" * 100_000] * 200, usage={**USAGE, "completion_tokens": 200})
    quick = chat_stream(*"Hello", usage={**USAGE, "completion_tokens": 5})
    begun = asyncio.Event()

    async def token_by_token(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + quick[0])
        await begun.wait()
        await peer.send(b"".join(quick[1:]))

    async with scripted_engine(stream(*long), token_by_token) as engine:
        gateway = await start(start_gateway, engine.url)
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=STREAM) as answer:
            await asyncio.sleep(0.7)  # that is how slow it is
            async for _ in answer.aiter_bytes():
                pass
        await settled(gateway, 1)
        assert gateway.metric("prefixgate_perf_samples_total", kind="decode") == 0
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=STREAM) as answer:
            async for _ in answer.aiter_bytes():
                begun.set()
        await settled(gateway, 2)
        assert gateway.metric("prefixgate_perf_samples_total", kind="decode") == 1


@pytest.mark.parametrize(
    "says",
    [
        b'block_size="1000000000000000000",num_gpu_blocks="100"',
        b'block_size="16",kv_cache_size_tokens="1e308"} 1.0\nvllm:cache_config_info{kv_cache_size_tokens="1.5e308"',
    ],
)
async def test_an_engine_whose_cache_is_larger_than_any_is_used_as_one_that_does_not_say(
    says: bytes, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        engine.metrics = METRICS.replace(b'block_size="16",engine="0",num_gpu_blocks="1000"', says)
        gateway = await start(start_gateway, engine.url)
        for _ in range(2):
            assert (await ask(client, gateway, CHAT)).status_code == 200
        health = (await client.get(f"{gateway.url}/health")).json()
        assert health["endpoints"]["e0"]["capacity_blocks"] in (None, 100)
