"""Adapters that are loaded, resident and evicted; ranks that each have a cache, behind one port."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.until import until_in_thread

FAST = 500.0
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Where? " * 60}], "max_tokens": 4}


def post(server: SimulatedServer, path: str, body: object, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=30)


def cached(server: SimulatedServer, rank: int | None = None, **more: Any) -> int:
    headers = {} if rank is None else {"x-data-parallel-rank": str(rank)}
    answer = post(server, "/v1/chat/completions", {**CHAT, **more}, **headers)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def models(server: SimulatedServer) -> dict[str, str | None]:
    data = httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"]
    return {one["id"]: one.get("parent") for one in data}


def ranks(server: SimulatedServer) -> list[dict[str, Any]]:
    found = server.state()["ranks"]
    assert isinstance(found, list)
    return found


@pytest.fixture
def vllm() -> Iterator[SimulatedServer]:
    with SimulatedServer(ServerSpec(model="m", speed=FAST, adapters=("a",), max_adapters=2)) as server:
        yield server


def test_an_adapter_is_a_model_of_its_own_with_a_parent_and_shares_no_prefix(vllm: SimulatedServer) -> None:
    assert models(vllm) == {"m": None, "a": "m"}
    assert [cached(vllm, model=name) > 0 for name in ("m", "a", "m", "a")] == [False, False, True, True]
    assert {one.adapter for one in vllm.records()} == {None, "a"}


def test_adapters_are_loaded_and_unloaded_over_http(vllm: SimulatedServer) -> None:
    one = {"lora_name": "b", "lora_path": "/adapters/b"}
    assert post(vllm, "/v1/chat/completions", {**CHAT, "model": "b"}).status_code == 404
    assert post(vllm, "/v1/load_lora_adapter", one).status_code == 200
    assert post(vllm, "/v1/load_lora_adapter", one).status_code == 400
    assert cached(vllm, model="b") == 0
    assert models(vllm)["b"] == "m"
    assert post(vllm, "/v1/unload_lora_adapter", {"lora_name": "b"}).status_code == 200
    assert post(vllm, "/v1/unload_lora_adapter", {"lora_name": "b"}).status_code == 404
    assert post(vllm, "/v1/chat/completions", {**CHAT, "model": "b"}).status_code == 404


def test_only_so_many_adapters_are_resident_and_who_was_used_longest_ago_leaves(vllm: SimulatedServer) -> None:
    for name in "bc":
        post(vllm, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": name})
    for name in "abac":
        cached(vllm, model=name)
    assert vllm.state()["adapters"] == {"resident": ["a", "c"], "loads": 3}
    cached(vllm, model="b")
    assert vllm.state()["adapters"] == {"resident": ["c", "b"], "loads": 4}


def test_loading_an_adapter_takes_its_time_once() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=100, adapters=("a",), adapter_load_s=20)) as server:
        began_s = time.monotonic()
        cached(server, model="a")
        assert time.monotonic() - began_s > 0.2
        cached(server, model="a")
        assert server.state()["adapters"] == {"resident": ["a"], "loads": 1}


def test_an_adapter_waits_for_room_while_all_that_are_resident_are_used() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=20, adapters=("a", "b"), max_adapters=1)) as server:
        long = threading.Thread(
            target=cached, args=(server,), kwargs={"model": "a", "max_tokens": 200, "ignore_eos": True}
        )
        long.start()
        until_in_thread(lambda: server.state()["adapters"] == {"resident": ["a"], "loads": 1})
        cached(server, model="b")
        long.join(30)
        assert [one.adapter for one in server.records()] == ["a", "b"]
        assert server.state()["adapters"] == {"resident": ["b"], "loads": 2}


def test_metrics_name_the_adapters_that_are_used() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=FAST, adapters=("a",), max_adapters=3)) as server:
        page = httpx.get(f"{server.url}/metrics", timeout=30).text
        [line] = [line for line in page.splitlines() if line.startswith("vllm:lora_requests_info{")]
        assert 'max_lora="3"' in line
        assert float(line.split()[-1]) == pytest.approx(time.time(), abs=60)


def test_sglang_names_an_adapter_behind_a_colon_or_in_a_field_and_refuses_one_that_is_not_loaded() -> None:
    with SimulatedServer(ServerSpec(dialect="sglang", model="m", speed=FAST)) as server:
        assert post(server, "/v1/chat/completions", {**CHAT, "model": "m:a"}).status_code == 400
        assert post(server, "/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}).json()["success"] is True
        assert [cached(server, model="m:a") > 0, cached(server, lora_path="a") > 0] == [False, True]
        assert cached(server) == 0
        assert post(server, "/unload_lora_adapter", {"lora_name": "a"}).json()["loaded_adapters"] == {}
        assert post(server, "/unload_lora_adapter", {"lora_name": "a"}).status_code == 400


def test_the_other_engines_name_adapters_in_their_own_ways() -> None:
    with SimulatedServer(ServerSpec(dialect="trtllm", model="m", speed=FAST)) as server:
        asked = {"lora_name": "a", "lora_int_id": 1}
        assert post(server, "/v1/chat/completions", {**CHAT, "lora_request": asked}).status_code == 400
        with_path = {**asked, "lora_path": "/a"}
        assert [cached(server, lora_request=one) > 0 for one in (with_path, asked)] == [False, True]
    with SimulatedServer(ServerSpec(dialect="llamacpp", model="m", speed=FAST, adapters=("a",))) as server:
        assert post(server, "/v1/chat/completions", {**CHAT, "lora": "a"}).status_code == 400
        cached(server, lora=[{"id": 7, "scale": 1.0}, {"id": 0, "scale": 1.0}])
        assert httpx.get(f"{server.url}/lora-adapters", timeout=30).json()[0]["id"] == 0
        assert [one.adapter for one in server.records()] == ["a"]
    with SimulatedServer(ServerSpec(dialect="tgi", model="m", speed=FAST, adapters=("a",))) as server:
        post(server, "/v1/chat/completions", {**CHAT, "adapter_id": "a"})
        assert [one.adapter for one in server.records()] == ["a"]


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_each_rank_has_a_cache_and_the_header_says_which_is_meant(dialect: str) -> None:
    with SimulatedServer(ServerSpec(dialect=dialect, model="m", speed=FAST, ranks=2)) as server:
        found = [cached(server, rank) > 0 for rank in (0, 1, 0, 1)]
        assert found == [False, False, True, True]
        assert [one.rank for one in server.records()] == [0, 1, 0, 1]
        page = httpx.get(f"{server.url}/metrics", timeout=30).text
        label = 'engine="1"' if dialect == "vllm" else 'dp_rank="1"'
        assert label in page


def test_a_rank_that_is_not_there_is_refused_and_what_is_no_number_by_sglang() -> None:
    for dialect, words in (("vllm", 200), ("sglang", 400)):
        with SimulatedServer(ServerSpec(dialect=dialect, model="m", speed=FAST, ranks=2)) as server:
            for rank, status in (("2", 400), ("x", words)):
                answer = post(server, "/v1/chat/completions", CHAT, **{"x-data-parallel-rank": rank})
                assert answer.status_code == status


def test_without_a_header_the_rank_with_the_fewest_requests_is_taken() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=FAST, ranks=3)) as server:
        server.change(wedged=True)
        threads = [threading.Thread(target=cached, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        until_in_thread(lambda: [rank["running"] for rank in ranks(server)] == [1, 1, 1])
        server.change(wedged=False)
        for thread in threads:
            thread.join(30)
        assert sorted(one.rank for one in server.records()) == [0, 1, 2]
