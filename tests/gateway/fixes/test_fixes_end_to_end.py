"""Requests fixed on their way through a real gateway, to an engine that counts what it finds in its cache."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.reference.embedded import RunningEngine
from backends.reference.model_files import ensure_model
from prefix_index import EmbeddedServer
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, settled

RULE = {"mode": "consented"}


def body(second: int, *names: str, **fields: Any) -> dict[str, Any]:
    system = f"Current time: 2026-11-30T12:05:{second:02}Z\n\n{STORY}"
    tools = [
        {"type": "function", "function": {"name": name, "description": STORY[:200], "parameters": {"type": "object"}}}
        for name in names
    ]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Who keeps the well?"}]
    found: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 2, "temperature": 0}
    return found | ({"tools": tools} if tools else {}) | fields


def ask(gateway: RunningGateway, asked: dict[str, Any], **headers: str) -> httpx.Response:
    answer = gateway.http.post("/v1/chat/completions", json=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


def cached_share(answer: httpx.Response) -> float:
    usage = answer.json()["usage"]
    return float(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])


def kept_fixes(path: Path) -> list[str | None]:
    query = "SELECT layout_fixes FROM settlements JOIN requests USING (request_id) ORDER BY opened_at_us"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [fixes for (fixes,) in connection.execute(query)]


@pytest.fixture
def models() -> dict[str, dict[str, str]]:
    return {MODEL: {"tokenizer": str(ensure_model(MODEL))}}


async def test_a_line_that_changed_is_moved_and_the_rest_is_found_in_the_cache(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]]
) -> None:
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=models, fixes=[RULE])
    first, second = [await asyncio.to_thread(ask, gateway, body(number)) for number in (1, 2)]
    assert first.headers["x-prefixgate-fixes"] == second.headers["x-prefixgate-fixes"] == "lines"
    assert cached_share(second) > 0.7
    assert (
        int(second.headers["x-prefixgate-cached-tokens"])
        == second.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    )
    await settled(gateway, 2)
    assert kept_fixes(gateway.ledger_path) == ["on:lines", "on:lines"]
    assert gateway.metric("prefixgate_fixes_total", fix="lines", arm="on") == 2


async def test_without_a_rule_nothing_is_changed(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]]
) -> None:
    others = [{"tenants": ["somebody"], "mode": "consented"}, {"models": ["other*"], "mode": "consented"}]
    for rules in ([], [{"mode": "off"}, RULE], others, [{**RULE, "routes": ["/v1/messages"]}]):
        gateway = await asyncio.to_thread(start_gateway, engine.url, models=models, fixes=rules)
        answer = await asyncio.to_thread(ask, gateway, body(3))
        assert "x-prefixgate-fixes" not in answer.headers
        await settled(gateway, 1)
        assert kept_fixes(gateway.ledger_path) == [None]


async def test_a_set_of_tools_has_the_order_in_which_it_came_first_on_any_replica(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]]
) -> None:
    rule = RULE | {"fixes": ["tools"], "tools_order": "first_seen"}
    choice = {"type": "function", "function": {"name": "b"}}
    async with EmbeddedServer() as server:
        flags: dict[str, Any] = {"models": models, "fixes": [rule], "index__redis_url": server.url}
        one, other = [await asyncio.to_thread(start_gateway, engine.url, **flags) for _ in range(2)]
        first = await asyncio.to_thread(ask, one, body(1, "c", "a", "b", tool_choice=choice))
        same = await asyncio.to_thread(ask, other, body(1, "b", "a", "c", tool_choice=choice))
    assert "x-prefixgate-fixes" not in first.headers
    assert same.headers["x-prefixgate-fixes"] == "tools"
    usage = same.json()["usage"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 16
