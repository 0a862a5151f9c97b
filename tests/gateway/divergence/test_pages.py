"""What live prompts show over `/admin/lint`, with real engines behind a real gateway; and that nothing of their text is
told anywhere."""

import asyncio
import json
import logging
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.reference.embedded import RunningEngine
from backends.reference.model_files import ensure_model
from gateway.divergence.pages import LINT_PATH, lint_page
from gateway.log_lines import LOGGER
from tests.gateway.conftest import MODEL, RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine

RULES = " \n".join(f"Rule {number} says how case {number} is handled." for number in range(24))
ADMIN = {"authorization": "Bearer letmein"}
TOOLS = [
    {
        "type": "function",
        "function": {"name": f"tool_{number}", "description": "It does this and that.", "parameters": {}},
    }
    for number in range(5)
]


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Cached tokens cost 1 less a million than others."""
    path = tmp_path / "prices.yaml"
    path.write_text(
        "currency: USD\nprices:\n"
        f"- {{model: {MODEL}, input_per_mtok: 2, cached_input_per_mtok: 1, output_per_mtok: 5, "
        "from: 2026-01-01T00:00:00Z}\n"
    )
    return path


async def begin(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path, **flags: object
) -> RunningGateway:
    httpx.post(f"{engine.url}/reset_prefix_cache").raise_for_status()
    models = {MODEL: {"tokenizer": ensure_model(MODEL)}}
    return await start(start_gateway, engine.url, models=models, admin_token_file=token_file, **flags)


async def ask(
    client: httpx.AsyncClient, gateway: RunningGateway, system: str, said: str, **more: object
) -> httpx.Response:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": said}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0, **more}
    answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def findings(client: httpx.AsyncClient, gateway: RunningGateway) -> list[dict[str, Any]]:
    answer = await client.get(f"{gateway.url}{LINT_PATH}", headers=ADMIN)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["findings"]
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    """What each settlement says of its miss, oldest first."""
    query = """SELECT miss_reason, changed_segment, lost_tokens, prompt_tokens, cached_tokens
               FROM settlements JOIN requests USING (request_id) ORDER BY opened_at_us"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def dated(second: int) -> str:
    return f"You are a clerk. \nCurrent time: 2026-11-30 12:00:{second:02} \n{RULES}"


async def test_a_time_in_the_system_prompt_is_named_after_some_requests_with_the_tokens_it_lost(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path, client: httpx.AsyncClient, prices: Path
) -> None:
    gateway = await begin(start_gateway, engine, token_file, prices_file=prices)
    for second in range(8):
        await ask(client, gateway, dated(second), f"And how is case {second} handled?")
    await settled(gateway, 8)
    [found] = await findings(client, gateway)
    kept = rows(gateway.ledger_path)
    assert (found["rule"], found["place"], found["cause"], found["safety"]) == (
        "time-before-fixed",
        "system",
        "time",
        "consent",
    )
    assert (found["tenant"], found["model"], found["route"]) == ("default", MODEL, "/v1/chat/completions")
    assert (found["requests"], found["of_requests"], found["variants"]) == (7, 7, 8)
    missed = sum(row["prompt_tokens"] - row["cached_tokens"] for row in kept[1:])
    assert 0.7 * missed < found["lost_tokens"] <= missed
    assert found["lost_tokens"] == sum(row["lost_tokens"] for row in kept[1:])
    assert found["lost_tokens_a_day"] == 24 * found["lost_tokens"]
    assert float(found["money_a_day"]) == pytest.approx(found["lost_tokens_a_day"] / 1e6)
    assert found["currency"] == "USD"
    assert found["first_character"] == found["last_character"] == len("You are a clerk. \n")
    assert {row["changed_segment"] for row in kept[1:]} == {"system time"}
    assert all(row["miss_reason"].startswith("prompt_changed:") for row in kept[1:])
    assert (kept[0]["miss_reason"], kept[0]["lost_tokens"], kept[0]["changed_segment"]) == ("cold", 0, None)
    lost = await asyncio.to_thread(gateway.metric, "prefixgate_lost_tokens_total", reason="prompt_changed")
    changes = await asyncio.to_thread(gateway.metric, "prefixgate_prompt_changes_total", part="system")
    assert (lost, changes) == (found["lost_tokens"], 7)
    page = (await client.get(f"{gateway.url}{LINT_PATH}", headers=ADMIN)).json()
    [calls] = page["calls"]
    assert (page["requests"], calls["requests"], calls["begun"], calls["parted_in"]) == (8, 8, 8, {"system": 7})
    assert sum(calls["parted_at_tokens"].values()) == 7
    nobody = await client.get(f"{gateway.url}{LINT_PATH}", headers=ADMIN, params={"tenant": "nobody"})
    assert (nobody.json()["findings"], nobody.json()["calls"]) == ([], [])


async def test_a_stable_prompt_is_no_finding(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path, client: httpx.AsyncClient
) -> None:
    gateway = await begin(start_gateway, engine, token_file)
    for number in range(8):
        question = f"{number} times {number + 1} is what, and how is it handled by the clerk?"
        await ask(client, gateway, RULES, question, tools=TOOLS)
    await settled(gateway, 8)
    assert await findings(client, gateway) == []
    kept = rows(gateway.ledger_path)[1:]
    assert {row["changed_segment"] for row in kept} <= {"message 1 user", None}
    assert sum(row["lost_tokens"] or 0 for row in kept) == 0


async def test_shuffled_tools_are_named(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path, client: httpx.AsyncClient
) -> None:
    gateway = await begin(start_gateway, engine, token_file)
    rng = random.Random(5)
    for number in range(9):
        shuffled = rng.sample(TOOLS, len(TOOLS))
        await ask(client, gateway, RULES, f"The same question each time, but for its number. {number}", tools=shuffled)
    await settled(gateway, 9)
    found = await findings(client, gateway)
    kept = [row["changed_segment"] for row in rows(gateway.ledger_path)]
    assert [one["rule"] for one in found] == ["tool-order"]
    assert kept.count("tools order") >= 6


async def test_nothing_of_a_secret_prompt_is_told_anywhere(
    start_gateway: StartGateway, token_file: Path, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "aardvark"
    caplog.set_level(logging.DEBUG, LOGGER.name)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        for number in range(9):
            tool = {"type": "function", "function": {"name": f"{secret}_{number % 2}", "parameters": {"a": secret}}}
            system = f"{secret} {number} {random.Random(number).random()}\n" + f"{secret} is the word.\n" * 40
            messages = [{"role": "system", "content": system}, {"role": f"{secret}", "content": f"{secret} {number}?"}]
            body = {"model": "m", "messages": messages, "tools": [tool]}
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body)
            assert answer.status_code == 200
        await settled(gateway, 9)
        told = [(await client.get(gateway.url + path, headers=ADMIN)).text for path in await pages(client, gateway)]
        told += [(await client.get(f"{gateway.url}/metrics")).text, (await client.get(f"{gateway.url}/health")).text]
        told += [json.dumps({**record.__dict__}, default=str) for record in caplog.records]
    for file in gateway.ledger_path.parent.glob(f"{gateway.ledger_path.name}*"):
        told.append(file.read_bytes().decode("latin-1"))
    assert any("changed_segment" in text for text in told)
    assert not [text for text in told if secret in text]


async def pages(client: httpx.AsyncClient, gateway: RunningGateway) -> list[str]:
    """All that can be read of the admin API without a name."""
    described = (await client.get(f"{gateway.url}/admin/openapi.json", headers=ADMIN)).json()
    return [path for path, methods in described["paths"].items() if "get" in methods and "{" not in path]


def row(**more: object) -> dict[str, object]:
    return {
        "rule": "time-before-fixed",
        "tenant": "acme",
        "model": "m",
        "route": "/v1",
        "place": "system",
        "cause": "time",
        "causes": {"time": 3},
        "first_token": 4,
        "last_token": 8,
        "first_character": 2,
        "last_character": 2,
        "variants": 3,
        "requests": 3,
        "of_requests": 4,
        "lost_tokens": 300,
        "lost_tokens_a_day": 7200,
        "money_a_day": "0.007200000000",
        "currency": "USD",
        "first_seen": "2026-11-30T12:00:00+00:00",
        "last_seen": "2026-11-30T13:00:00+00:00",
        **more,
    }


def call(**more: object) -> dict[str, object]:
    name = {"tenant": "acme", "model": "m", "route": "/v1"}
    return {**name, "requests": 7, "begun": 4, "parted_at_tokens": {"16": 3}, "parted_in": {"system": 3}, **more}


def test_what_several_workers_found_is_one_finding_with_all_that_it_cost() -> None:
    other = row(
        causes={"uuid": 5, "time": 1}, first_token=0, first_character=None, variants=None, money_a_day="0.1", requests=7
    )
    pages = [
        {
            "as_of": "2026-11-30T13:00:00+00:00",
            "requests": 10,
            "kinds_of_calls": 1,
            "findings": [row()],
            "calls": [call()],
        },
        {
            "as_of": "2026-11-30T13:00:01+00:00",
            "requests": 5,
            "kinds_of_calls": 2,
            "findings": [other, row(place="tools", lost_tokens_a_day=9, cause=None, causes={}, money_a_day=None)],
            "calls": [call(tenant="bolt"), call(requests=5, parted_at_tokens={"0": 1, "16": 2})],
        },
    ]
    found: Any = lint_page(pages)
    assert (found["as_of"], found["requests"], found["kinds_of_calls"]) == ("2026-11-30T13:00:01+00:00", 15, 3)
    system, tools = found["findings"]
    assert (system["requests"], system["of_requests"], system["lost_tokens_a_day"]) == (10, 8, 14400)
    assert (system["cause"], system["causes"]) == ("uuid", {"time": 4, "uuid": 5})
    assert (system["first_token"], system["first_character"], system["variants"]) == (0, 2, 3)
    assert system["money_a_day"] == "0.107200000000"
    assert (tools["place"], tools["money_a_day"], tools["cause"]) == ("tools", None, None)
    assert [(one["tenant"], one["requests"], one["begun"]) for one in found["calls"]] == [
        ("acme", 12, 8),
        ("bolt", 7, 4),
    ]
    assert found["calls"][0]["parted_at_tokens"] == {"0": 1, "16": 5}
    assert found["calls"][0]["parted_in"] == {"system": 6}
