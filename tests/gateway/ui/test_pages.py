"""What the pages say, out of real traffic; that nothing of a prompt or a key is in any of them."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from backends.reference.embedded import RunningEngine
from gateway.cli import cli
from gateway.status import _PARTS
from gateway.ui.remedies import REMEDIES, health_page
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, ledger_rows, settled, start
from tests.gateway.limited import KEY, bearer, keys_file, prices_file
from tests.gateway.ui.looking import TOKEN, events_of, looking, token_in
from tests.repo.test_docs import commands_of

MARK = "zanzibar-7f3a"
"""Stands in every prompt, and must stand in nothing that is shown."""
SELLER = """
seller: {name: Prefix Ltd}
currency: USD
taxes: {standard: {label: VAT, rate_percent: 20}}
default_tax: standard
buyers: {acme: {name: Acme}}
"""
PAGES = (
    *("api/fleet", "api/health", "api/traffic", "api/traffic?range=24h", "api/prefixes", "api/decisions"),
    *("api/tenants", "api/findings", "api/session"),
)


def chat(turns: int, stream: bool = False) -> dict[str, Any]:
    said = [{"role": "user", "content": f"{STORY} {MARK} {turn}"} for turn in range(turns)]
    return {"model": MODEL, "messages": said, "max_tokens": 4, "stream": stream, "user": f"user-{MARK}"}


@pytest.fixture
async def looked_at(start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path) -> RunningGateway:
    (tmp_path / "seller.yaml").write_text(SELLER)
    gateway = await start(
        start_gateway,
        engine.url,
        ui__token_file=token_in(tmp_path),
        keys_file=keys_file(tmp_path),
        prices_file=prices_file(tmp_path, MODEL),
        invoicing_file=tmp_path / "seller.yaml",
    )
    async with httpx.AsyncClient(base_url=gateway.url, headers=bearer(), timeout=60) as http:
        for turns in (1, 1, 2):
            answer = await http.post("/v1/chat/completions", json=chat(turns, stream=turns == 2))
            assert answer.status_code == 200, answer.text
    await settled(gateway, 3)
    return gateway


async def test_pages_say_what_the_ledger_and_the_admin_api_say(looked_at: RunningGateway) -> None:
    rows = ledger_rows(looked_at.ledger_path)
    prompt = sum(row.prompt_tokens or 0 for row in rows)
    cached = sum(row.cached_tokens or 0 for row in rows)
    assert cached > 0
    async with looking(looked_at.url) as client:
        pages = {path: (await client.get(path)).json() for path in PAGES}
        (row,) = pages["api/fleet"]["endpoints"]
        assert (row["id"], row["models"], row["state"], row["healthy"]) == ("e0", [MODEL], "up", True)
        assert row["coverage"]["blocks"] > 0
        assert row["answers"] == len(rows)
        total = pages["api/traffic"]["total"]
        assert (total["requests"], total["prompt_tokens"], total["cached_tokens"]) == (len(rows), prompt, cached)
        assert total["hit_share"] == pytest.approx(cached / prompt)
        assert total["ceiling_share"] >= total["hit_share"]
        assert total["ttft_s"]["p50"] > 0
        assert len(pages["api/traffic"]["points"]) == 60
        assert pages["api/traffic?range=24h"]["total"] == total
        (tenant,) = pages["api/tenants"]["tenants"]
        assert (tenant["tenant"], tenant["requests"], tenant["prompt_tokens"]) == ("acme", len(rows), prompt)
        assert (tenant["cached_tokens"], tenant["fresh_tokens"]) == (cached, prompt - cached)
        assert Decimal(tenant["full_price"]) - Decimal(tenant["charged"]) == Decimal(tenant["saved"]) > 0
        decisions = pages["api/decisions"]["decisions"]
        assert [one["request_id"] for one in decisions] == [row.request_id for row in reversed(rows)]
        assert [one["reported_cached_tokens"] for one in decisions] == [row.cached_tokens for row in reversed(rows)]
        for one in decisions:
            assert sum(one["terms"].values()) == pytest.approx(one["cost_s"])
            whole = (await client.get(f"api/decisions/{one['request_id']}")).json()
            assert whole["terms"]["e0"]["cost_s"] == pytest.approx(one["cost_s"])
        assert (await client.get("api/decisions?tenant=nobody")).json()["decisions"] == []
        assert len((await client.get("api/decisions?limit=1&endpoint=e0")).json()["decisions"]) == 1
        unknown = await client.get("api/decisions/01NOTHERE")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
        assert pages["api/findings"]["lint"]["requests"] == len(rows)


async def test_prefixes_are_a_tree(looked_at: RunningGateway) -> None:
    async with httpx.AsyncClient(base_url=looked_at.url, headers=bearer(), timeout=60) as http:
        for turn in ("one way", "another way"):
            body = chat(1)
            body["messages"].append({"role": "user", "content": f"{turn} {STORY}"})
            await http.post("/v1/chat/completions", json=body)
    await settled(looked_at, 5)
    async with looking(looked_at.url) as client:
        rows = (await client.get("api/prefixes")).json()["prefixes"]
    by_hash = {row["hash"]: row for row in rows}
    children = [row for row in rows if row["parent"] is not None]
    assert children
    for row in children:
        assert by_hash[row["parent"]]["depth_tokens"] < row["depth_tokens"]


async def test_a_previewed_invoice_is_the_draft_and_nothing_is_kept(looked_at: RunningGateway) -> None:
    async with looking(looked_at.url) as client:
        month = (await client.get("api/session")).json()["as_of"][:7]
        page = (await client.get(f"api/invoices/acme/{month}")).json()
        again = (await client.get(f"api/invoices/acme/{month}")).json()
        (document,) = page["documents"]
        assert document["total"] == again["documents"][0]["total"]
        assert Decimal(document["net"]) + Decimal(document["tax"]) == Decimal(document["total"])
        assert sum(Decimal(line["amount"]) for line in document["lines"]) == Decimal(document["net"])
        html = await client.get(document["html"])
        assert "Draft of an invoice" in html.text
        policy = html.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'; style-src 'sha256-")
        assert policy.endswith("frame-ancestors 'self'")
        nobody = await client.get(f"api/invoices/nobody/{month}")
        assert nobody.status_code == 404
        for wrong in ("2026", "2026-13", "..", "2026-11-01"):
            assert (await client.get(f"api/invoices/acme/{wrong}")).status_code in (400, 404)
        assert (await client.get(f"{document['html']}&document=9")).status_code == 400


async def test_no_page_has_anything_of_a_prompt_a_key_or_a_secret(looked_at: RunningGateway) -> None:
    async with looking(looked_at.url) as client:
        month = (await client.get("api/session")).json()["as_of"][:7]
        decided = (await client.get("api/decisions")).json()["decisions"]
        paths = (
            *PAGES,
            *(f"api/decisions/{one['request_id']}" for one in decided),
            *(f"api/invoices/acme/{month}", f"invoices/acme/{month}.html"),
        )
        texts = [(await client.get(path)).text for path in paths]
        async with client.stream("GET", "events") as answer:
            async for _, data in events_of(answer):
                if isinstance(data, dict):
                    texts.append(str(data))
                    break
    for text in texts:
        for secret in (MARK, "caravan", KEY, KEY[:16], TOKEN):
            assert secret not in text


async def test_events_tell_of_requests_as_they_come(looked_at: RunningGateway) -> None:
    async with looking(looked_at.url) as client, client.stream("GET", "events") as answer, asyncio.timeout(60):
        events = events_of(answer)
        name, view = await _next(events)
        assert (name, view["health"]["status"], view["live"]["viewers"]) == ("snapshot", "ok", 1)
        assert set(view["endpoints"]) == {"e0"}
        known = {row["request_id"] for row in view["decisions"]}
        async with httpx.AsyncClient(base_url=looked_at.url, headers=bearer(), timeout=60) as http:
            asked = (await http.post("/v1/chat/completions", json=chat(2))).headers["x-request-id"]
        assert asked not in known
        while True:
            name, change = await _next(events)
            assert name == "delta"
            if any(row["request_id"] == asked and row["state"] for row in change.get("decisions", ())):
                break
        while not change["live"].get("requests_per_s"):
            _, change = await _next(events)


async def _next(events: Any) -> tuple[str, Any]:
    async for name, data in events:
        if name:
            return name, data
    raise AssertionError("the stream has ended")


def test_every_part_that_can_be_degraded_has_a_remedy() -> None:
    assert set(_PARTS) - set(REMEDIES) == set()
    for found in health_page(dict.fromkeys(_PARTS, "it is so"))["degraded"]:
        assert found["meaning"].endswith(".")
        assert found["remedy"].endswith(".")


def test_every_command_of_a_remedy_is_one_of_ours_with_options_that_it_has() -> None:
    command = typer.main.get_command(cli)
    names = set(commands_of(command))
    for remedy in REMEDIES.values():
        if remedy.command is not None and not remedy.command.startswith("curl"):
            words = remedy.command.split()
            spoken = " ".join(word for word in words if not word.startswith("--") and word.islower())
            assert spoken in names


def test_a_part_that_is_new_is_told_all_the_same() -> None:
    (row,) = health_page({"weather": "it rains"})["degraded"]
    assert row == {"part": "weather", "why": "it rains", "meaning": None, "remedy": None, "command": None}


async def test_what_is_degraded_is_told_with_its_remedy(start_gateway: StartGateway, tmp_path: Path) -> None:
    gateway = await start(start_gateway, "http://127.0.0.1:9", ui__token_file=token_in(tmp_path), limits__connect_s=0.2)
    async with looking(gateway.url) as client:
        health = (await client.get("api/health")).json()
        (row,) = (await client.get("api/fleet")).json()["endpoints"]
        prefixes = await client.get("api/prefixes")
    assert health["status"] == "degraded"
    (found,) = [one for one in health["degraded"] if one["part"] == "endpoints"]
    assert (found["why"], found["command"]) == ("down: e0", "prefixgate check --config FILE")
    assert (row["state"], row["healthy"], row["kv_use"], row["speed"]) == ("down", False, None, None)
    assert row["why"]
    assert prefixes.json()["prefixes"] == []
