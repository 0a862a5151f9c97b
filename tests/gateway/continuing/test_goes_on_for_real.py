"""A real engine goes on where another one was cut off."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest

from backends.reference.embedded import RunningEngine
from backends.reference.model_files import ensure_model
from tests.gateway.conftest import MODEL, STORY, StartGateway, settled
from tests.gateway.continuing.talking import heard
from tests.hostile import Behaviour, HostileServer, Peer

ASKED: dict[str, Any] = {
    "model": MODEL,
    "stream": True,
    "temperature": 0,
    "max_tokens": 24,
    "ignore_eos": True,
    "stream_options": {"include_usage": True},
}


def cutting(engine: RunningEngine, after_events: int) -> Behaviour:
    """The engine behind a proxy that closes both sides once so many events of a stream have passed."""
    host, port = engine.url.removeprefix("http://").split(":")

    async def behave(peer: Peer) -> None:
        request = await peer.read_request()
        reader, writer = await asyncio.open_connection(host, int(port))
        seen = 0
        try:
            writer.write(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
            while seen <= after_events and (data := await reader.read(65536)):
                seen += data.count(b"data: ")
                await peer.send(data)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    return behave


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "ids"])
async def test_what_a_second_engine_writes_goes_on_where_the_first_was_cut(
    chat: bool, engine: RunningEngine, start_gateway: StartGateway
) -> None:
    """Text is tokenised anew, and this model's is no language: only by ids it is sure to be the very same answer."""
    path = "/v1/chat/completions" if chat else "/v1/completions"
    body = ASKED | {"messages": [{"role": "user", "content": STORY}]}
    if not chat:
        body = ASKED | {"prompt": [*range(1000, 1100)], "return_token_ids": True}
    async with HostileServer([cutting(engine, 4)]) as dying, httpx.AsyncClient(timeout=60) as client:
        whole = heard((await client.post(engine.url + path, json=body)).content)
        gateway = await asyncio.to_thread(
            start_gateway,
            dying.url,
            engine.url,
            continuation__enabled=True,
            scheduling__policy="round_robin",
            models={MODEL: {"tokenizer": ensure_model(MODEL)}},
        )
        answer = await client.post(gateway.url + path, json=body)
        [row] = await settled(gateway, 1)
    before, marked, _ = answer.content.partition(b": prefixgate-continued 1\n\n")
    told, first = heard(answer.content), heard(before)
    assert (bool(marked), told.finishes, told.done, told.errors) == (True, ["length"], 1, [])
    assert first.text
    assert whole.text.startswith(first.text)
    assert told.text == whole.text or chat
    assert told.usages[0]["prompt_tokens"] == whole.usages[0]["prompt_tokens"] == row.prompt_tokens
    assert (told.usages[0]["completion_tokens"], row.output_tokens) == (24, 24)
    assert (row.state, row.attempts) == ("complete", 2)
