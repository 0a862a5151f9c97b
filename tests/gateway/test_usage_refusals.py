"""A server that refuses to be asked for a stream's usage: clients that did not ask get their stream all the same."""

import json

import httpx
import pytest

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import answer_json, chat_stream, scripted_engine
from tests.hostile import Behaviour, Peer

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
REFUSAL = {"error": {"message": "Unrecognized request argument supplied: stream_options", "code": None}}
WORDS = [*chat_stream("a", "b")[:2], b"data: [DONE]\n\n"]


def refuses_options(status: int = 400) -> Behaviour:
    """Refuses a body with `stream_options`, streams to any other."""

    async def plays(peer: Peer) -> None:
        body = json.loads((await peer.read_request()).partition(b"\r\n\r\n")[2])
        if "stream_options" in body:
            said = json.dumps(REFUSAL).encode()
            await peer.send(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\nconnection: close\r\n" % status)
            await peer.send(b"content-length: %d\r\n\r\n%s" % (len(said), said))
            return
        await peer.send(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        await peer.send(b"".join(WORDS))

    return plays


@pytest.mark.parametrize("status", [400, 422])
async def test_a_stream_goes_without_usage_where_the_server_refuses_to_be_asked_for_it(
    status: int, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(refuses_options(status), owner="me") as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        for _ in range(2):
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
            assert (answer.status_code, answer.content) == (200, b"".join(WORDS))
        rows = await settled(gateway, 2)
        asked = ["stream_options" in json.loads(body) for body in engine.bodies]
    assert asked == [True, False, False]
    assert [(row.attempts, row.prompt_tokens, row.cached_tokens) for row in rows] == [(1, None, None)] * 2


async def test_what_a_client_asks_for_itself_is_refused_to_it(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(refuses_options(), owner="me") as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        for options in ({"include_usage": True}, {"include_obfuscation": False}):
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json={**CHAT, "stream_options": options})
            assert (answer.status_code, answer.json()) == (400, REFUSAL)
        assert len(engine.requests) == 2


async def test_another_refusal_is_the_clients(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    refusal = {"error": {"message": "max_tokens is too large"}}
    async with scripted_engine(answer_json(refusal, 400), owner="me") as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.json(), len(engine.requests)) == (400, refusal, 1)


async def test_a_server_that_goes_on_refusing_is_asked_twice_and_no_more(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json(REFUSAL, 400), owner="me") as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.json(), len(engine.requests)) == (400, REFUSAL, 2)
