"""Answers that are cut, by the client or by the engine: never free, never the whole; and heads that are no answers."""

import asyncio

import httpx
import pytest

from tests.gateway import scripted_engine as engines
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import USAGE, answer_chat, chat_stream, delta, event, scripted_engine
from tests.hostile import Peer, stream
from tests.until import until

STREAM = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}], "stream": True}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def ask(client: httpx.AsyncClient, gateway: RunningGateway) -> httpx.Response:
    return await client.post(f"{gateway.url}/v1/chat/completions", json=STREAM)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_an_engine_that_dies_after_its_head_and_before_any_token_is_replaced(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def head_only(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD)

    async with scripted_engine(head_only) as bad, scripted_engine(answer_chat("Hi")) as good:
        gateway = await asyncio.to_thread(start_gateway, bad.url, good.url, scheduling__policy="round_robin")
        answer = await ask(client, gateway)
        rows = await settled(gateway, 1)
    assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "e1")
    assert [(row.state, row.endpoint_id, row.attempts) for row in rows] == [("complete", "e1", 2)]


async def test_a_head_without_an_answer_is_a_first_byte_time_out(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def head_and_silence(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD)
        await peer.hang()

    async with scripted_engine(head_and_silence) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, limits__first_byte_s=0.3, limits__idle_s=60.0)
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert [row.state for row in await settled(gateway, 1)] == ["failed"]


async def test_an_engine_that_has_said_it_is_done_need_not_close_properly(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def never_closes(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"".join(map(chunked, chat_stream("Hi"))))
        await peer.hang()

    async with scripted_engine(never_closes) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        answer = await ask(client, gateway)
        rows = await settled(gateway, 1)
    assert answer.content == delta("Hi") + b"data: [DONE]\n\n"
    assert [(row.state, row.output_tokens) for row in rows] == [("complete", 2)]


@pytest.mark.parametrize("who", ["engine", "client"])
async def test_a_cut_stream_is_billed_for_what_was_computed_and_marked_as_estimated(
    who: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    seen = asyncio.Event()

    async def two_words(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(delta("The") + delta(" books")))
        if who == "client":
            await peer.hang()
        await seen.wait()

    async with scripted_engine(two_words) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=STREAM) as answer:
            async for _ in answer.aiter_raw():
                seen.set()
                if who == "client":
                    break
        row = (await settled(gateway, 1))[0]
        assert gateway.metric("prefixgate_tokens_total", kind="prompt") == 0  # only the engine's word is counted there
    # The scripted engine's /tokenize says 40 for every text: for the prompt, and for the answer.
    assert (row.state, row.prompt_tokens, row.output_tokens, row.cached_tokens) == ("partial", 40, 40, 0)
    assert "estimated" in row.flags


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"tokens":[1]}'


def tokenize_says(answers: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted engines answer /tokenize with these bodies in turn, the last one for every further question."""
    plain, asked = engines._plain, iter(answers)

    def said(status: int, content: object) -> bytes:
        if isinstance(content, dict) and "max_model_len" in content and "tokens" in content:
            body = next(asked, answers[-1])
            return engines._head(200, b"application/json", body) + body
        return plain(status, content)

    monkeypatch.setattr(engines, "_plain", said)


async def test_an_odd_answer_about_tokens_is_not_the_clients_fault(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenize_says([DEEP], monkeypatch)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json={**STREAM, "stream": False})
    assert (answer.status_code, answer.headers["x-prefixgate-tokens"]) == (200, "bytes")


async def test_a_cut_stream_that_cannot_be_counted_is_settled_and_stops_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenize_says([b'{"tokens":[1,2,3]}', DEEP], monkeypatch)
    async with scripted_engine(stream(delta("The"), end=False), answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        await ask(client, gateway)
        assert (await client.get(f"{gateway.url}/health")).status_code == 200
        await settled(gateway, 1)
        again = await client.post(f"{gateway.url}/v1/chat/completions", json={**STREAM, "stream": False})
        rows = await settled(gateway, 2)
    assert again.status_code == 200
    assert [(row.state, row.prompt_tokens, row.output_tokens) for row in rows] == [
        ("partial", 3, None),
        ("complete", 40, 2),
    ]


@pytest.mark.parametrize(("told", "output_tokens"), [(1, 40), (60, 60)])
async def test_a_cut_stream_with_text_after_the_last_usage_pays_for_that_too(
    told: int, output_tokens: int, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """An engine that reports at the start, and is cut after 800 pieces of text, has not written one token."""
    at_start = event({"choices": [], "usage": USAGE | {"completion_tokens": told}})
    script = stream(at_start, *[delta(" book")] * 800, end=False)
    async with scripted_engine(script) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        await ask(client, gateway)
        [row] = await settled(gateway, 1)
    # The scripted engine's /tokenize says 40 for every text.
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("partial", 40, 32, output_tokens)
    assert "estimated" in row.flags


async def test_e_a_cut_stream_of_cumulative_usage_pays_the_last_of_it(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    chunks = [
        event({"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": USAGE | {"completion_tokens": k}})
        for k in range(1, 8)
    ]
    async with scripted_engine(stream(*chunks, end=False)) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        await ask(client, gateway)
        [row] = await settled(gateway, 1)
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("partial", 40, 32, 7)
    assert "estimated" not in row.flags


@pytest.mark.parametrize(("status", "state"), [(429, "rejected"), (500, "failed")])
async def test_who_leaves_in_the_middle_of_an_error_pays_nothing_for_it(
    status: int, state: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    said = asyncio.Event()

    async def half_an_error(peer: Peer) -> None:
        await peer.read_request()
        head = b"HTTP/1.1 %d Oh\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n" % status
        await peer.send(head + b'{"error":{"message":"no')
        said.set()
        await peer.hang()

    async with scripted_engine(half_an_error) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        asking = asyncio.ensure_future(ask(client, gateway))
        await said.wait()
        await until(lambda: gateway.metric("prefixgate_time_to_first_token_seconds_count"))
        asking.cancel()
        [row] = await settled(gateway, 1)
    assert (row.state, row.prompt_tokens, row.output_tokens) == (state, None, None)
    assert "estimated" not in row.flags
