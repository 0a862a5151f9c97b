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
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, settled
from tests.until import until

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
    redis_url: str, start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]]
) -> None:
    rule = RULE | {"fixes": ["tools"], "tools_order": "first_seen"}
    choice = {"type": "function", "function": {"name": "b"}}
    flags: dict[str, Any] = {"models": models, "fixes": [rule], "index__redis_url": redis_url}
    one, other = [await asyncio.to_thread(start_gateway, engine.url, **flags) for _ in range(2)]
    first = await asyncio.to_thread(ask, one, body(1, "c", "a", "b", tool_choice=choice))
    same = await asyncio.to_thread(ask, other, body(1, "b", "a", "c", tool_choice=choice))
    assert "x-prefixgate-fixes" not in first.headers
    assert same.headers["x-prefixgate-fixes"] == "tools"
    usage = same.json()["usage"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 16


async def test_a_share_is_fixed_and_both_sides_stand_beside_each_other(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]], token_file: Path
) -> None:
    rule = RULE | {"ab_share": 0.5}
    gateway = await asyncio.to_thread(
        start_gateway, engine.url, models=models, fixes=[rule], admin_token_file=token_file
    )
    sides: dict[str, list[httpx.Response]] = {"on:lines": [], "off:lines": []}
    for number in range(6):
        job = {"x-prefixgate-job-id": f"job-{number}"}
        answers = [
            await asyncio.to_thread(ask, gateway, body(second), **job) for second in (10 * number, 10 * number + 1)
        ]
        changed = ["x-prefixgate-fixes" in answer.headers for answer in answers]
        assert changed[0] is changed[1], "a job stays on its side"
        sides["on:lines" if changed[0] else "off:lines"] += answers
    rows = await settled(gateway, 12)
    kept = kept_fixes(gateway.ledger_path)
    assert {side: kept.count(side) for side in sides} == {side: len(answers) for side, answers in sides.items()}
    assert all(sides.values()), "with these jobs both sides have some"
    found = await admin(gateway, "/admin/fixes?from=2026-01-01")
    for table in (found["arms"], found["ledger"]):
        of_side = {f"{row['arm']}:{row['fixes']}": row for row in table}
        assert {side: row["requests"] for side, row in of_side.items()} == {s: len(a) for s, a in sides.items()}
        # Each side's first prompt is cold, and how many are on a side is by the hash of their jobs.
        assert of_side["on:lines"]["hit_share"] > 0.5 > of_side["off:lines"]["hit_share"]
    assert sum(row["finishes"].get("length", 0) for row in found["arms"]) == 12
    assert sum(row["output_tokens"] for row in found["ledger"]) == sum(row.output_tokens or 0 for row in rows)
    assert (await admin(gateway, "/admin/fixes?from=nonsense", status=400))["detail"]
    assert "ledger" not in await admin(gateway, "/admin/fixes")


async def test_a_shadow_changes_nothing_and_says_what_would_be_gained(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]], token_file: Path
) -> None:
    rules = [{"mode": "shadow", "shadow_share": 1}]
    gateway = await asyncio.to_thread(
        start_gateway, engine.url, models=models, fixes=rules, admin_token_file=token_file
    )
    for second in range(20, 24):
        assert "x-prefixgate-fixes" not in (await asyncio.to_thread(ask, gateway, body(second))).headers
    await asyncio.to_thread(ask, gateway, body(24, messages=[{"role": "user", "content": "Nothing to fix."}]))
    await until(lambda: gateway.metric("prefixgate_fix_shadow_total") >= 5)
    (row,) = (await admin(gateway, "/admin/fixes"))["shadow"]
    assert (row["tenant"], row["fixes"], row["requests"]) == ("default", "lines", 4)
    assert row["cached_share"] < 0.1
    assert row["cached_share_fixed"] > 0.5
    assert gateway.metric("prefixgate_fix_shadow_total", outcome="unfixed") == 1
    assert kept_fixes(gateway.ledger_path) == [None] * 5


async def test_requests_of_other_dialects_are_fixed_before_they_are_translated(
    start_gateway: StartGateway, engine: RunningEngine, models: dict[str, dict[str, str]]
) -> None:
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=models, fixes=[RULE])
    system = "Now: 2026-11-30T12:06:{:02}Z\n\n" + STORY.replace("caravan", "column")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/messages", {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 2}),
        ("/v1/responses", {"input": "Who keeps it?", "max_output_tokens": 2}),
    ]
    for path, fields in asked:
        name = "system" if path == "/v1/messages" else "instructions"
        for second in (1, 2):
            body = {"model": MODEL, name: system.format(second)} | fields
            answer = await asyncio.to_thread(gateway.http.post, path, json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-prefixgate-fixes"] == "lines"
        assert int(answer.headers["x-prefixgate-cached-tokens"]) > 100
    await settled(gateway, 4)
    assert kept_fixes(gateway.ledger_path) == ["on:lines"] * 4


async def admin(gateway: RunningGateway, path: str, status: int = 200) -> dict[str, Any]:
    answer = await asyncio.to_thread(gateway.http.get, path, headers={"authorization": "Bearer letmein"})
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found
