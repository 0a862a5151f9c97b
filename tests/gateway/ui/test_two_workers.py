"""Two workers have one dashboard: whichever is asked answers for both, and takes the other's cookie."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.crash import End
from gateway.ui.session import COOKIE
from tests.gateway.ui.looking import cookie_of, events_of, looking, token_in
from tests.gateway.workers.served import PATIENCE_S, served
from tests.until import until

pytestmark = pytest.mark.timeout(300)

CONNECTIONS = 12
"""Enough that both workers have one, but for a chance of 1 in 2048."""


async def test_any_worker_shows_the_whole_gateway(tmp_path: Path) -> None:
    async with served(tmp_path, ui__token_file=str(token_in(tmp_path))) as gateway:
        await gateway.answers(40)
        gateway.clients.up.clear()
        seen = [call for call in gateway.clients.seen if call.end is End.SERVED]
        async with looking(gateway.url) as client, asyncio.timeout(PATIENCE_S):
            await _settled(client)
            once = {"connection": "close", "cookie": f"{COOKIE}={cookie_of(client)}"}
            decided = [(await client.get("api/decisions?limit=500", headers=once)).json() for _ in range(CONNECTIONS)]
            for page in decided:
                assert {call.request_id for call in seen} <= {row["request_id"] for row in page["decisions"]}
            for call in seen[:CONNECTIONS]:
                answer = await client.get(f"api/decisions/{call.request_id}", headers=once)
                assert answer.json()["request_id"] == call.request_id
            lint = {
                (await client.get("api/findings", headers=once)).json()["lint"]["requests"] for _ in range(CONNECTIONS)
            }
            assert len(lint) == 1
            assert lint.pop() >= len(seen)
            rows = [(await client.get("api/fleet", headers=once)).json()["endpoints"] for _ in range(CONNECTIONS)]
            assert {(row["id"], row["state"]) for found in rows for row in found} == {("known", "up")}
            views = await asyncio.gather(*(_view(gateway.url, once) for _ in range(4)))
            assert all(view["live"]["workers"] == {"alive": 2, "wanted": 2} for view in views)
            assert max(view["live"]["viewers"] for view in views) >= 2
            totals = [(await client.get("api/traffic", headers=once)).json()["total"] for _ in range(CONNECTIONS)]
            assert min(total["requests"] for total in totals) >= len(seen)


async def _settled(client: httpx.AsyncClient) -> None:
    """Wait until nothing is under way at any worker."""
    await until(lambda: _first(client), lambda view: not view["live"]["in_flight_requests"], within_s=PATIENCE_S)


async def _first(client: httpx.AsyncClient) -> Any:
    """The view of a new viewer."""
    async with client.stream("GET", "events") as answer:
        return await anext(data async for name, data in events_of(answer) if name == "snapshot")


async def _view(url: str, headers: dict[str, str]) -> Any:
    """The view of a new viewer after its first change."""
    async with (
        httpx.AsyncClient(base_url=f"{url}/ui/", headers=headers, timeout=PATIENCE_S) as client,
        client.stream("GET", "events") as answer,
    ):
        events = events_of(answer)
        view = await anext(data async for name, data in events if name == "snapshot")
        change = await anext(data async for name, data in events if name == "delta")
        return {**view, "live": {**view["live"], **change.get("live", {})}}
