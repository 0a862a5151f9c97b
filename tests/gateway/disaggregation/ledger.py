"""Gateways over a prefill and a decode endpoint, what they are asked, and what their ledgers say then."""

import sqlite3
from contextlib import closing
from typing import Any

import httpx

from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.disaggregation.engines import backend
from tests.gateway.scripted_engine import ScriptedEngine

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "What is a whale?"}], "max_tokens": 9}


async def started(
    start_gateway: StartGateway, prefill: ScriptedEngine | str, decode: ScriptedEngine | str, **flags: Any
) -> RunningGateway:
    return await start(
        start_gateway, backends=[backend(prefill, "p", "prefill"), backend(decode, "d", "decode")], **flags
    )


async def ask(
    client: httpx.AsyncClient, gateway: RunningGateway, timeout: float = 20.0, **fields: Any
) -> httpx.Response:
    """A chat."""
    return await client.post(f"{gateway.url}/v1/chat/completions", json={**CHAT, **fields}, timeout=timeout)


def split_row(gateway: RunningGateway) -> tuple[Any, ...]:
    with closing(sqlite3.connect(f"file:{gateway.ledger_path}?mode=ro", uri=True)) as connection:
        query = (
            "SELECT endpoint_id, prefill_endpoint_id, prefill_cached_tokens, decode_cached_tokens, cached_tokens,"
            " output_tokens, flags FROM settlements ORDER BY settled_at_us DESC LIMIT 1"
        )
        found: tuple[Any, ...] = connection.execute(query).fetchone()
        return found


def attempts(gateway: RunningGateway) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{gateway.ledger_path}?mode=ro", uri=True)) as connection:
        return list(
            connection.execute(
                "SELECT endpoint_id, outcome FROM attempts JOIN requests USING (request_id)"
                " ORDER BY opened_at_us, ordinal"
            )
        )
