"""`prefixgate explain`: why a request went where it went, and what came of it, asked of a running gateway."""

import asyncio
import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from gateway.cli import cli
from gateway.commands.explain import costs, filtered, knowledge
from gateway.log_lines import LOGGER
from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, answer_json, chat_stream, scripted_engine
from tests.hostile import stream

PLAIN = {"model": "m", "messages": [{"role": "user", "content": "a secret question"}]}
STREAM = {**PLAIN, "stream": True}
LOST = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
"""The usage of an engine that has nothing of the prompt any more."""
SLOW = {"scheduling__prefill_tokens_per_s": 100.0}
"""40 tokens take 0.4 s."""


async def explain(gateway: RunningGateway, token_file: Path, request_id: str, *options: str) -> Result:
    """What the command says of a request."""
    arguments = ("explain", request_id, "--gateway", gateway.url, "--token-file", str(token_file), *options)
    return await asyncio.to_thread(CliRunner().invoke, cli, [*arguments])


async def explained(gateway: RunningGateway, token_file: Path, request_id: str) -> dict[str, Any]:
    result = await explain(gateway, token_file, request_id, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, body: object, **headers: str) -> httpx.Headers:
    answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    return answer.headers


def cells(result: Result, *words: str) -> list[str]:
    """The cells of the one row that has all these words."""
    rows = [line for line in result.output.splitlines() if line[:1] in {"│", "┃"}]
    (line,) = [line for line in rows if all(word in line for word in words)]
    return [cell.strip() for cell in re.split("[│┃]", line.strip("│┃ "))]


async def test_a_request_is_explained_with_what_came_of_it(
    start_gateway: StartGateway, token_file: Path, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    lost = stream(*chat_stream("Hi", usage=LOST))
    async with scripted_engine(lost) as one, scripted_engine(lost) as two:
        gateway = await start(start_gateway, one.url, two.url, admin_token_file=token_file, **SLOW)
        await ask(client, gateway, STREAM)
        headers = await ask(client, gateway, STREAM)
        await settled(gateway, 2)
        found = await explained(gateway, token_file, headers["x-request-id"])
        shown = await explain(gateway, token_file, headers["x-request-id"])
        regrets = await asyncio.to_thread(gateway.metric, "prefixgate_decision_regret_seconds_count")
        errors = await asyncio.to_thread(gateway.metric, "prefixgate_ttft_prediction_error_seconds_count")
    name = headers["x-prefixgate-endpoint"]
    fact, ended = found["candidates"][name], found["outcome"]
    assert (found["endpoint"], found["reason"], found["prompt_tokens"]) == (name, "prefix_hit", 40)
    assert (fact["matched_tokens"], fact["expected_cached_tokens"]) == (32, 32)
    assert 0 < fact["survival"] <= 1
    assert (ended["state"], ended["reported_cached_tokens"]) == ("complete", 0)
    assert ended["ttft_s"] > 0
    assert ended["predicted_ttft_s"] == pytest.approx(
        found["terms"][name]["wait_s"] + found["terms"][name]["prefill_s"]
    )
    assert ended["cost_s"] > ended["predicted_cost_s"]
    assert ended["regret_s"] == pytest.approx(max(ended["cost_s"] - ended["least_other_cost_s"], 0))
    assert (regrets, errors) == (2, 2)
    logged = [line.__dict__["fields"] for line in caplog.records if line.getMessage() == "request"]
    assert [line["regret_s"] for line in logged if line["request_id"] == found["request_id"]] == [ended["regret_s"]]
    assert shown.exit_code == 0, shown.output
    assert "secret" not in shown.output
    assert f"sent to {name}, prefix_hit: " in shown.output
    assert cells(shown, "->")[1:3] == [name, f"{found['terms'][name]['cost_s']:.3f}"]
    assert cells(shown, "cached tokens") == ["cached tokens", "32", "0"]
    assert cells(shown, "regret, s")[2] == f"{ended['regret_s']:.3f}"
    assert (ended["miss_reason"], ended["changed_segment"], ended["lost_tokens"]) == ("evicted", None, 32)
    assert "missed: evicted, it had been there, and the engine has it no longer; 32 tokens lost" in shown.output
    assert cells(shown, "seconds at")[1:] == [
        "cost",
        "wait",
        "prefill",
        "delays",
        "displacement",
        "decode pressure",
        "crowding",
    ]
    assert cells(shown, "tokens at")[1:4] == ["matched", "survival", "on average"]


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_rank_that_was_chosen_is_marked_and_adapters_have_no_column_where_none_was_asked_for() -> None:
    terms = {"wait_s": 1.0, "adapter_load_s": 0.0, "cost_s": 1.0, "at_best": False}
    found = {
        "endpoint": "e",
        "rank": 1,
        "terms": {"e/0": terms | {"cost_s": 2.0}, "e/1": terms},
        "others": {"count": 0, "least_cost_s": None},
    }
    marked = [line for line in printed(costs(found)).splitlines() if "->" in line]
    assert len(marked) == 1
    assert "e/1" in marked[0]
    assert "adapter" not in printed(costs(found))


def test_terms_of_another_gateway_are_printed_as_it_names_them_and_the_rest_is_counted() -> None:
    found = {
        "endpoint": "b",
        "terms": {
            "b": {"wait_s": 1.0, "adapter_load_s": 0.5, "cost_s": 1.5, "at_best": False},
            "a": {"wait_s": 0.25, "cost_s": 0.25, "at_best": True},
        },
        "candidates": {
            name: {
                "matched_tokens": 4096,
                "survival": None,
                "cached_tokens": 4095.6,
                "expected_cached_tokens": 4096,
                "queued_tokens": 2500,
                "recent_tokens": 0.0,
                "kv_use": None,
                "speed": {"prefill_tokens_per_s": 12_500.0},
            }
            for name in "ab"
        },
        "others": {"count": 1484, "least_cost_s": 2.5},
        "filtered": {"c": "draining"},
        "filtered_others": {"draining": 1, "of_a_newer_kind": 2},
        "filtered_why": {"draining": "it is being drained"},
    }
    shown = printed(costs(found))
    assert "adapter load" in shown
    assert re.search(r"│ +│ a +│ 0\.250 │ 0\.250 │ - +│\n│ -> │ b +│ 1\.500 │ 1\.000 │ 0\.500 +│", shown)
    assert "and 1,484 more, from 2.500 s on" in shown
    assert re.search(
        r"│ a +│ 4,096 +│ at best +│ 4,096 +│ 4,096 +│ 2,500 │ 0 +│ - +│ 12,500 +│", printed(knowledge(found))
    )
    assert re.search(r"and 2 more +│ of_a_newer_kind", printed(filtered(found)))


async def test_a_plain_answer_tells_no_time_of_a_first_token(
    start_gateway: StartGateway, token_file: Path, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        headers = await ask(client, gateway, PLAIN)
        ended = (await explained(gateway, token_file, headers["x-request-id"]))["outcome"]
        errors = await asyncio.to_thread(gateway.metric, "prefixgate_ttft_prediction_error_seconds_count")
    assert (ended["ttft_s"], ended["reported_cached_tokens"], ended["regret_s"], errors) == (None, 32, 0, 0)


async def test_who_was_left_out_is_shown_and_a_failure_is_no_regret(
    start_gateway: StartGateway, token_file: Path, client: httpx.AsyncClient
) -> None:
    refuses = answer_json({"error": {"message": "overloaded"}}, status=503)
    async with scripted_engine(refuses) as one, scripted_engine(refuses) as two:
        gateway = await start(start_gateway, one.url, two.url, admin_token_file=token_file)
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=PLAIN)
        assert answer.status_code == 503
        await settled(gateway, 1)
        found = await explained(gateway, token_file, answer.headers["x-request-id"])
        shown = await explain(gateway, token_file, answer.headers["x-request-id"])
        regrets = await asyncio.to_thread(gateway.metric, "prefixgate_decision_regret_seconds_count")
    (left_out,) = found["filtered"]
    assert cells(shown, left_out) == [left_out, "failed", "it was tried for this request and failed"]
    assert (found["outcome"]["state"], found["outcome"]["regret_s"], regrets) == ("failed", None, 0)
    assert "no other endpoint could take the request" in shown.output


async def test_a_request_that_nobody_knows_is_said_to_be_unknown(start_gateway: StartGateway, token_file: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        unknown = await explain(gateway, token_file, "no/such id")
    assert unknown.exit_code == 1
    assert "answers 404: no such request among the last 4,096" in unknown.output


async def test_a_tenant_who_asks_is_told_when_the_first_token_was_thought_to_come_and_nothing_of_others(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as two:
        gateway = await start(start_gateway, one.url, two.url, **SLOW)
        cold = await ask(client, gateway, PLAIN, **{"X-Prefixgate-Explain": "1"})
        warm = await ask(client, gateway, PLAIN, **{"X-Prefixgate-Explain": "1"})
        unasked = await ask(client, gateway, PLAIN)
        reached = b"".join(one.requests + two.requests)
    assert re.fullmatch(r"wait=0\.00 prefill=0\.4\d", cold["x-prefixgate-decision"])
    assert re.fullmatch(r"wait=\d\.\d\d prefill=0\.[0-3]\d", warm["x-prefixgate-decision"])
    assert "x-prefixgate-decision" not in unasked
    assert b"x-prefixgate" not in reached.lower()


@pytest.mark.parametrize("says", [{"status": "ok"}, ["a list"], "text", {"request_id": "x", "terms": None}, None, 7])
async def test_what_is_no_gateway_of_this_version_is_told_in_a_line(says: object, token_file: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as other:
        other.pages["/admin/requests/x"] = says
        arguments = ("explain", "x", "--gateway", other.url, "--token-file", str(token_file))
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "of another version" in result.output or "a gateway of this version" in result.output
