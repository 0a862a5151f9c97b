"""Gateways that go on with streams, what they are asked, and what their ledgers say then."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import httpx

from tests.gateway.conftest import RunningGateway, StartGateway
from tests.gateway.scripted_engine import scripted_engine
from tests.hostile import Behaviour

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
    start: StartGateway, *scripts: Behaviour, owners: tuple[str, ...] = (), **flags: object
) -> AsyncIterator[tuple[RunningGateway, httpx.AsyncClient]]:
    """Engines, a gateway that goes on, a client."""
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(scripted_engine(script, owner=owner))
            for script, owner in zip(scripts, owners or ["vllm"] * len(scripts), strict=True)
        ]
        flags = {"continuation__enabled": True, **flags}
        gateway = await asyncio.to_thread(start, *[engine.url for engine in engines], **flags)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=gateway.url, timeout=30))
        yield gateway, client


def column(gateway: RunningGateway, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{gateway.ledger_path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()
