"""Templates over the admin API: seen, put, retired."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.templates.files import folder, support

YAML = {"content-type": "application/yaml"}


@pytest.fixture
async def admin(start_gateway: StartGateway, tmp_path: Path, token_file: Path) -> AsyncIterator[httpx.AsyncClient]:
    place = folder(tmp_path / "templates", support=support())
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, templates_dir=place, admin_token_file=token_file)
        headers = {"authorization": "Bearer letmein"}
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=30) as http:
            yield http


async def test_all_templates_are_listed_and_one_is_shown_in_both_orders(admin: httpx.AsyncClient) -> None:
    (listed,) = (await admin.get("/admin/templates")).json()["templates"]
    assert (listed["name"], listed["version"], listed["reordered"], listed["needed"]) == (
        *("support", "1", True),
        ["question"],
    )
    shown = (await admin.get("/admin/templates/support@1")).json()
    assert [row["names"] for row in shown["before"]][1] == ["now"]
    assert [row["kind"] for row in shown["after"]][:2] == ["fixed", "slot"]
    (moved,) = shown["moved"]
    assert moved["why"] == "now changes per-request (as marked), and fixed text stands behind"
    assert shown["share_after"]["share"] > shown["share_before"]["share"] == 0


async def test_a_version_is_put_once_and_called_at_once(admin: httpx.AsyncClient) -> None:
    for _ in range(2):
        answer = await admin.put("/admin/templates/support@2", content=support("2", tone="quick"), headers=YAML)
        assert (answer.status_code, answer.json()["version"]) == (200, "2")
    conflict = await admin.put("/admin/templates/support@2", content=support("2"), headers=YAML)
    assert conflict.status_code == 409
    call = {"model": "m", "template": "support@2", "variables": {"question": "Why?"}}
    assert (await admin.post("/v1/chat/completions", json=call)).status_code == 200


async def test_a_retired_version_is_not_called_any_more(admin: httpx.AsyncClient) -> None:
    assert (await admin.delete("/admin/templates/support@1")).json() == {"retired": "support@1"}
    call = {"model": "m", "template": "support", "variables": {"question": "Why?"}}
    assert (await admin.post("/v1/chat/completions", json=call)).status_code == 404
    assert (await admin.get("/admin/templates")).json()["retired"] == ["support@1"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/admin/templates/nothing", 404),
        ("GET", "/admin/templates/a b", 422),
        ("PUT", "/admin/templates/support", 422),
        ("PUT", "/admin/templates/other@1", 422),
        ("DELETE", "/admin/templates/support", 422),
        ("DELETE", "/admin/templates/support@7", 404),
    ],
)
async def test_what_cannot_be_done_is_refused(admin: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await admin.request(method, path, content=support(), headers=YAML)
    assert (answer.status_code, "detail" in answer.json()) == (status, True)


async def test_without_a_folder_there_are_none(start_gateway: StartGateway, token_file: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file)
        headers = {"authorization": "Bearer letmein"}
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers) as http:
            assert (await http.get("/admin/templates")).json()["templates"] == []
            assert (await http.put("/admin/templates/a@1", content="text: x", headers=YAML)).status_code == 404
