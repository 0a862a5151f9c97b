"""Prices of a running gateway: looked at, tried, and read again without a restart."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import cli
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import answer_chat, scripted_engine

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
ADMIN = {"authorization": "Bearer letmein"}
BOOK = """
currency: USD
prices:
  - {id: one, model: m, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2026-01-01}
tenants: {default: {discounts: [{id: half, percent: 50, from: 2026-01-01}]}}
"""


def write(path: Path, text: str) -> None:
    """As an editor that replaces the file."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def until_problem(client: httpx.AsyncClient, *, is_there: bool) -> dict[str, object]:
    """What `/admin/prices` says once the gateway has noticed the file by itself."""
    async with asyncio.timeout(10):
        while True:
            found: dict[str, object] = (await client.get("/admin/prices", headers=ADMIN)).json()
            if (found["problem"] is not None) is is_there:
                return found
            await asyncio.sleep(0.02)


@pytest.fixture
def book_file(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(BOOK)
    return path


async def test_a_request_is_billed_by_its_tenants_terms_and_the_row_keeps_what_it_followed_from(
    start_gateway: StartGateway, book_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway: RunningGateway = await asyncio.to_thread(start_gateway, engine.url, prices_file=book_file)
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        (row,) = await settled(gateway, 1)
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        price_id, input_pico, charged, on_list = connection.execute(
            "SELECT price_id, input_pico, charged_pico, list_pico FROM settlements"
        ).fetchone()
    assert row.tenant_id == "default"
    assert (price_id, input_pico) == ("one~half", 500_000)
    assert 2 * charged == on_list > 0


async def test_what_a_tenant_pays_is_shown_beside_the_list_in_amounts_per_million(
    start_gateway: StartGateway, token_file: Path, book_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file, prices_file=book_file)
        async with httpx.AsyncClient(base_url=gateway.url, headers=ADMIN) as client:
            everything = (await client.get("/admin/prices")).json()
            asked = {"model": "m", "tenant": "default", "at": "2026-11-15", "prompt_tokens": "9"}
            effective = (await client.get("/admin/prices/effective", params=asked)).json()
            before = (await client.get("/admin/prices/effective", params={**asked, "at": "2025-11-15"})).json()
            wrong = await client.get("/admin/prices/effective", params={**asked, "at": "soon"})
            apis = (await client.get("/admin/prices/apis")).json()
            closed = await client.get("/admin/prices", headers={"authorization": "Bearer wrong"})
    assert everything["file"] == str(book_file)
    assert [price["id"] for price in everything["prices"]] == ["one"]
    assert (effective["price"]["id"], effective["price"]["input_per_mtok"]) == ("one~half", "0.5")
    assert effective["list"]["cached_input_per_mtok"] == "0.1"
    assert (before["price"], before["list"]) == (None, None)
    assert wrong.status_code == 422
    assert all(one["as_of"] and one["source"] for one in apis)
    assert closed.status_code == 401


async def test_a_new_file_is_tried_without_being_applied_and_read_when_asked(
    start_gateway: StartGateway, token_file: Path, book_file: Path
) -> None:
    dearer = BOOK.replace("input_per_mtok: 1", "input_per_mtok: 2")
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(
            start_gateway, engine.url, admin_token_file=token_file, prices_file=book_file, poll_interval_s=60
        )
        async with httpx.AsyncClient(base_url=gateway.url, headers=ADMIN) as client:
            yaml = {"content-type": "application/yaml"}
            tried = (await client.post("/admin/prices/check", content=dearer, headers=yaml)).json()
            refused = (await client.post("/admin/prices/check", content="prices: {", headers=yaml)).json()
            still = (await client.get("/admin/prices/effective", params={"model": "m"})).json()
            write(book_file, dearer)
            read = (await client.post("/admin/prices/reload")).json()
            now = (await client.get("/admin/prices/effective", params={"model": "m"})).json()
            write(book_file, "currency: USD\nprices: [{model: m}]\n")
            bad = (await client.post("/admin/prices/reload")).json()
            kept = (await client.get("/admin/prices/effective", params={"model": "m"})).json()
    change = [{"what": "price one", "kind": "changed", "had_begun": True}]
    assert tried == {"valid": True, "problem": None, "changes": change}
    assert (refused["valid"], refused["changes"]) == (False, [])
    assert "is no YAML" in refused["problem"]
    assert still["price"]["input_per_mtok"] == "1"
    assert read == tried
    assert bad["valid"] is False
    assert now["price"]["input_per_mtok"] == kept["price"]["input_per_mtok"] == "2"


async def test_a_file_that_changes_is_noticed_and_one_that_cannot_be_used_is_shown_in_health(
    start_gateway: StartGateway, token_file: Path, book_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(
            start_gateway, engine.url, admin_token_file=token_file, prices_file=book_file, poll_interval_s=0.05
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            write(book_file, "currency: XYZ\nprices: []\n")
            await until_problem(client, is_there=True)
            ill = (await client.get("/health")).json()
            metric = await asyncio.to_thread(gateway.metric, "prefixgate_degraded", part="prices")
            write(book_file, BOOK.replace("id: one", "id: two"))
            healed = await until_problem(client, is_there=False)
            well = (await client.get("/health")).json()
    assert "XYZ is not in ISO 4217" in ill["degraded"]["prices"]
    assert metric == 1
    assert isinstance(healed["prices"], list)
    assert healed["prices"][0]["id"] == "two"
    assert "prices" not in well["degraded"]


def test_the_command_shows_prices_and_refuses_a_file_that_cannot_be_used(tmp_path: Path, book_file: Path) -> None:
    run = CliRunner().invoke
    checked = run(cli, ["prices", "check", "--prices", str(book_file)])
    assert checked.exit_code == 0
    assert "usable, prices: 1, discounts: 1" in checked.output
    shown = run(cli, ["prices", "show", "--prices", str(book_file), "--tenant", "default", "--at", "2026-11-15"])
    assert "0.5 USD" in shown.output
    assert "one~half" in shown.output
    as_json = run(cli, ["prices", "show", "--prices", str(book_file), "--model", "x", "--json"])
    assert '"price": null' in as_json.output
    assert "unpriced" in run(cli, ["prices", "show", "--prices", str(book_file), "--model", "x"]).output
    apis = run(cli, ["prices", "show", "--apis", "--model", "openai/gpt-5.4"])
    assert "> 272,000" in apis.output
    assert '"gpt-5.4"' in run(cli, ["prices", "show", "--apis", "--model", "gpt-5.4", "--json"]).output
    bad = tmp_path / "bad.yaml"
    bad.write_text("currency: USD\nprices: [{model: m}]\n")
    for arguments in (
        ["check", "--prices", str(bad)],
        ["show"],
        ["check", "--prices", str(book_file), "--plans", str(bad)],
    ):
        assert run(cli, ["prices", *arguments]).exit_code == 2
    assert run(cli, ["prices", "show", "--prices", str(book_file), "--at", "soon"]).exit_code == 2
