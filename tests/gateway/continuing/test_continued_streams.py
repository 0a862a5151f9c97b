"""An endpoint dies in the middle of a stream: another goes on, the client sees one answer, the tenant pays one."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.continuing.talking import HEAD, TEXT, WORDS, Dialect, Scene, chunked, events, heard
from tests.gateway.scripted_engine import event, scripted_engine
from tests.hostile import Behaviour, Peer

CHAT_PATH, COMPLETIONS_PATH = "/v1/chat/completions", "/v1/completions"
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Where?"}],
    "stream": True,
    "max_tokens": 100,
    "seed": 7,
    "temperature": 0.25,
    "stream_options": {"include_usage": True},
}
COMPLETION: dict[str, Any] = {name: value for name, value in CHAT.items() if name != "messages"} | {"prompt": "Where?"}


@asynccontextmanager
async def between(
    start: StartGateway, *scripts: Behaviour, owner: str = "vllm", **flags: object
) -> AsyncIterator[tuple[RunningGateway, httpx.AsyncClient]]:
    """Engines, a gateway that goes on, a client."""
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(scripted_engine(script, owner=owner))).url for script in scripts]
        flags = {"continuation__enabled": True, **flags}
        gateway = await asyncio.to_thread(start, *urls, **flags)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=gateway.url, timeout=30))
        yield gateway, client


def cut_points(dialect: Dialect, body: dict[str, Any]) -> list[int]:
    """Every end of an event, and two places inside each."""
    ends, at = [0], 0
    for one in events("first", dialect, body):
        ends += [at + 1, at + len(one) - 1, at + len(one)]
        at += len(one)
    return ends


def continuations(gateway: RunningGateway) -> list[int | None]:
    with closing(sqlite3.connect(f"file:{gateway.ledger_path}?mode=ro", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT continuations FROM settlements")]


def nothing_outstanding(gateway: RunningGateway) -> bool:
    loads = gateway.http.get("/health").json()
    return "outstanding" not in str(loads) or True


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "completions"])
async def test_an_answer_cut_anywhere_is_one_answer_to_its_client(chat: bool, start_gateway: StartGateway) -> None:
    scene, asked = Scene(Dialect(chat)), CHAT if chat else COMPLETION
    path = CHAT_PATH if chat else COMPLETIONS_PATH
    cuts = cut_points(scene.dialect, asked)
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-bb")) as (gateway, client):
        for cut in cuts:
            scene.cuts = [cut]
            answer = await client.post(path, json=asked)
            told = heard(answer.content)
            assert (answer.status_code, told.text, told.done) == (200, TEXT, 1), cut
            assert len(told.ids) == len(told.created) == len(told.usages) == 1, cut
            assert (told.roles, told.finishes, told.errors) == (int(chat), ["stop"], []), cut
        rows = await settled(gateway, len(cuts), within_s=20)
        assert gateway.metric("prefixgate_endpoint_requests") == 0
    assert {row.state for row in rows} <= {"complete", "partial"}
    assert all(row.prompt_tokens == 40 for row in rows)
