"""Endpoints given to the admin API: kept in a file, followed by every worker, and removed again."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from backends.reference.embedded import RunningEngine
from gateway.discovery.files import AdminFile, entry_of, read_listing
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.discovery.test_file import ask, known, other, takers, until_shown

__all__ = ["other"]
TOKEN = {"authorization": "Bearer letmein"}
ENDPOINTS = "/admin/endpoints"


async def administered(gateway: StartGateway, folder: Path, token_file: Path, *static: str) -> RunningGateway:
    return await start(
        gateway,
        *static,
        admin_token_file=token_file,
        discovery__admin_file=folder / "given.json",
        discovery__poll_s=30,
        discovery__grace_s=0,
        poll_interval_s=0.1,
    )


def call(gateway: RunningGateway, method: str, path: str, **given: object) -> httpx.Response:
    return gateway.http.request(method, path, headers=TOKEN, json=given or None)


async def test_one_that_is_added_serves_and_one_that_is_removed_is_gone(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path, token_file: Path
) -> None:
    gateway = await administered(start_gateway, tmp_path, token_file)
    answer = call(gateway, "POST", ENDPOINTS, url=engine.url, id="gpu-1", role="both", gpu_cost_per_hour="2.10")
    assert (answer.status_code, answer.json()) == (201, {"id": "gpu-1", "url": engine.url})
    await until_shown(lambda: takers(gateway) == ["gpu-1"])
    (row,) = call(gateway, "GET", ENDPOINTS).json()
    assert (row["sources"], row["state"], row["role"], row["gpu_cost_per_hour"]) == (["admin"], "up", "both", "2.10")
    assert ask(gateway).headers["x-prefixgate-endpoint"] == "gpu-1"
    answer = call(gateway, "DELETE", f"{ENDPOINTS}/gpu-1")
    assert (answer.status_code, answer.json()) == (200, {"id": "gpu-1", "still_listed_by": []})
    await until_shown(lambda: known(gateway) == [])
    assert call(gateway, "DELETE", f"{ENDPOINTS}/gpu-1").status_code == 404


async def test_what_was_added_is_there_after_a_restart(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path, token_file: Path
) -> None:
    first = await administered(start_gateway, tmp_path, token_file)
    assert call(first, "POST", ENDPOINTS, url=engine.url, id="gpu-1").status_code == 201
    second = await administered(start_gateway, tmp_path, token_file)
    assert takers(second) == ["gpu-1"]


async def test_without_a_file_nothing_is_promised(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path
) -> None:
    gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
    answer = call(gateway, "POST", ENDPOINTS, url="http://10.0.0.1:8000")
    assert (answer.status_code, "discovery.admin_file" in answer.json()["detail"]) == (409, True)
    assert gateway.http.post(ENDPOINTS, json={"url": "http://10.0.0.1:8000"}).status_code == 401


async def test_what_cannot_be_an_endpoint_is_refused_and_changes_nothing(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path, token_file: Path
) -> None:
    gateway = await administered(start_gateway, tmp_path, token_file, engine.url)
    for given in ({"url": "ftp://x"}, {"url": engine.url, "colour": "red"}, {"url": engine.url, "id": "a b"}, {}):
        assert gateway.http.post(ENDPOINTS, headers=TOKEN, json=given).status_code == 422
    taken = call(gateway, "POST", ENDPOINTS, url="http://10.0.0.1:8000", id="e0")
    assert (taken.status_code, "listed by config" in taken.json()["detail"]) == (409, True)
    not_ours = call(gateway, "DELETE", f"{ENDPOINTS}/e0")
    assert (not_ours.status_code, "remove it there" in not_ours.json()["detail"]) == (409, True)
    assert not (tmp_path / "given.json").exists()
    assert known(gateway) == ["e0"]


async def test_a_successor_must_be_another_one_that_takes_requests(
    start_gateway: StartGateway, engine: RunningEngine, token_file: Path
) -> None:
    gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
    assert call(gateway, "POST", f"{ENDPOINTS}/e0/drain?successor=nobody").status_code == 404
    assert call(gateway, "POST", f"{ENDPOINTS}/e0/drain?successor=e0").status_code == 409
    assert takers(gateway) == ["e0"]


async def test_the_hottest_prefixes_are_handed_to_a_chosen_successor(
    start_gateway: StartGateway, engine: RunningEngine, other: RunningEngine, tmp_path: Path, token_file: Path
) -> None:
    gateway = await start(
        start_gateway,
        engine.url,
        admin_token_file=token_file,
        scheduling__prewarm_prefixes=4,
        discovery__admin_file=tmp_path / "given.json",
        poll_interval_s=0.1,
    )
    text = "The keeper of the fourth well writes down who has drunk from it, and when. " * 20
    for _ in range(3):
        ask(gateway, text)
    call(gateway, "POST", ENDPOINTS, url=other.url, id="heir")
    await until_shown(lambda: "heir" in takers(gateway))
    answer = call(gateway, "POST", f"{ENDPOINTS}/e0/drain?successor=heir").json()
    assert (answer["successor"], answer["prefixes"]) == ("heir", 1)
    await until_shown(lambda: gateway.metric("prefixgate_prewarm_tokens_total", endpoint="heir") > 0)
    after = ask(gateway, text)
    assert after.headers["x-prefixgate-endpoint"] == "heir"
    assert after.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_two_workers_that_are_called_at_once_lose_neither_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "given.json"

    def put(number: int) -> None:
        AdminFile(path).put(entry_of({"url": f"http://10.0.0.{number}:8000"}))

    with ThreadPoolExecutor(8) as pool:
        await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, put, n) for n in range(32)))
    assert len(read_listing(path.read_bytes())) == 32


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps({"endpoints": [{"url": "http://a:1", "id": "a"}]}))
    file = AdminFile(path)
    assert not file.put(entry_of({"url": "http://a:2", "id": "a"}))
    assert [one.url for one in read_listing(path.read_bytes())] == ["http://a:2"]
    assert file.remove(lambda one: one.name == "a")
    assert not file.remove(lambda one: one.name == "a")
    assert read_listing(path.read_bytes()) == []
