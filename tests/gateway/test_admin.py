"""The admin API: decisions explained, endpoints drained, and nothing without the token."""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a secret question"}]}
TOKEN = {"authorization": "Bearer letmein"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("letmein\n")
    return path


async def test_a_decision_is_explained_term_by_term_without_the_prompt(
    start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as two:
        gateway: RunningGateway = await asyncio.to_thread(start_gateway, one.url, two.url, admin_token_file=token_file)
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            answers = [await client.post("/v1/chat/completions", json=CHAT) for _ in range(2)]
            found = await client.get(f"/admin/requests/{answers[1].headers['x-request-id']}", headers=TOKEN)
    explained = found.json()
    assert explained["endpoint"] == answers[1].headers["x-prefixgate-endpoint"]
    assert explained["reason"] == "prefix_hit"
    assert explained["expected_cached_tokens"] == 32
    assert set(explained["terms"]) == {"e0", "e1"}
    for term in explained["terms"].values():
        parts = [value for name, value in term.items() if name not in ("cost_s", "at_best")]
        assert term["cost_s"] == pytest.approx(sum(parts))
    assert "secret" not in found.text


async def test_a_drained_endpoint_gets_no_new_requests_until_it_is_let_in_again(
    start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as two:
        gateway = await asyncio.to_thread(
            start_gateway, one.url, two.url, admin_token_file=token_file, scheduling__policy="round_robin"
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            await client.post("/admin/endpoints/e0/drain", headers=TOKEN)
            drained = {
                (await client.post("/v1/chat/completions", json=CHAT)).headers["x-prefixgate-endpoint"] for _ in "1234"
            }
            states = {e["id"]: e["draining"] for e in (await client.get("/admin/endpoints", headers=TOKEN)).json()}
            await client.post("/admin/endpoints/e0/drain?draining=false", headers=TOKEN)
            both = {
                (await client.post("/v1/chat/completions", json=CHAT)).headers["x-prefixgate-endpoint"] for _ in "1234"
            }
            unknown = await client.post("/admin/endpoints/nobody/drain", headers=TOKEN)
    assert drained == {"e1"}
    assert states == {"e0": True, "e1": False}
    assert both == {"e0", "e1"}
    assert unknown.status_code == 404


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic letmein"}])
async def test_without_the_token_there_is_nothing_to_see(
    headers: dict[str, str], start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file)
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers) as client:
            assert (await client.get("/admin/endpoints")).status_code == 401
            assert (await client.post("/admin/endpoints/e0/drain")).status_code == 401
            document = await client.get("/admin/openapi.json")
            assert document.status_code == 401
            assert "endpoints" not in document.text


@pytest.mark.parametrize("path", ["/admin/prices/check", "/admin/nothing/here"])
async def test_a_stranger_is_refused_before_the_body_has_come(
    path: str, start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file)
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(gateway.url).port)
            head = f"POST {path} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer wrong\r\ncontent-length: 1000\r\n\r\n"
            writer.write(head.encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
            writer.close()


async def test_without_a_token_file_there_is_no_admin_api(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            assert (await client.get("/admin/endpoints", headers=TOKEN)).status_code == 404


async def test_what_is_only_watched_is_kept_beside_what_was_done_and_counted(
    start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as two:
        gateway: RunningGateway = await asyncio.to_thread(
            start_gateway, one.url, two.url, admin_token_file=token_file, scheduling__observe="round_robin"
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            answers = [await client.post("/v1/chat/completions", json=CHAT) for _ in range(3)]
            asked = [f"/admin/requests/{answer.headers['x-request-id']}" for answer in answers]
            explained = [(await client.get(path, headers=TOKEN)).json() for path in asked]
        counted = await asyncio.to_thread(
            lambda: [
                gateway.metric("prefixgate_observed_decisions_total", outcome=which) for which in ("same", "other")
            ]
        )
    assert [one["endpoint"] for one in explained] == ["e0", "e1", "e0"]
    assert {one["reason"] for one in explained} == {"policy"}
    assert explained[1]["observed"] == {
        "endpoint": "e0",
        "rank": None,
        "reason": "prefix_hit",
        "expected_cached_tokens": 32,
        "uncached_tokens": explained[1]["uncached_tokens"] - 32,
    }
    assert sum(counted) == len(answers)
    assert counted[1] >= 1
