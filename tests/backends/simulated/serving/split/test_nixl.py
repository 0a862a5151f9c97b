"""vLLM's connector: the right sequence works, every wrong one is refused."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.backends.simulated.serving.split.pairs import (
    ASK,
    CHAT,
    FAST,
    TEXT,
    Pair,
    cached,
    chat,
    metric,
    pair_of,
    said,
)
from tests.until import until_in_thread


@pytest.fixture
def nixl() -> Iterator[Pair]:
    with pair_of("vllm") as pair:
        yield pair


def params_of(prefill: SimulatedServer, **more: Any) -> Any:
    answer = chat(prefill, max_tokens=1, kv_transfer_params=ASK, **more)
    return answer.json()["kv_transfer_params"]


def test_nixl_decodes_what_was_computed_elsewhere_and_reports_what_the_other_engine_had_found(nixl: Pair) -> None:
    prefill, decode = nixl
    first = params_of(prefill)
    assert (first["do_remote_prefill"], first["remote_port"]) == (True, prefill.side_port)
    assert first["remote_num_tokens"] == chat(prefill).json()["usage"]["prompt_tokens"]
    answer = chat(decode, kv_transfer_params=first)
    assert (said(answer), cached(answer)) == (TEXT, 0)
    again = chat(decode, kv_transfer_params=params_of(prefill))
    assert (said(again), cached(again)) == (TEXT, 144)
    assert [one.part for one in decode.records()] == ["decode", "decode"]
    assert decode.state()["ranks"][0]["computed_tokens"] == 0  # type: ignore[index]  # JSON
    assert metric(decode, "vllm:external_prefix_cache_hits_total") == 2 * first["remote_num_tokens"]


def test_before_031_what_was_fetched_counts_as_cached() -> None:
    with pair_of("vllm", version="0.23.0") as (prefill, decode):
        params = params_of(prefill)
        assert "remote_prefill_cached_tokens" not in params
        answer = chat(decode, kv_transfer_params=params)
        assert cached(answer) == answer.json()["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"remote_block_ids": [[1, 2, 3]]},
        {"remote_request_id": "chatcmpl-another"},
        {"remote_engine_id": "another"},
        {"remote_num_tokens": 3},
        {"remote_prefill_cached_tokens": 99},
        {"remote_port": 1},
        {"remote_host": None},
    ],
)
def test_nixl_params_that_were_changed_are_refused_and_the_right_ones_work_after_all(
    nixl: Pair, wrong: dict[str, object]
) -> None:
    prefill, decode = nixl
    params = params_of(prefill)
    refused = chat(decode, kv_transfer_params={**params, **wrong})
    assert refused.status_code == 500
    assert "KV transfer failed" in refused.json()["error"]["message"]
    assert said(chat(decode, kv_transfer_params=params)) == TEXT


def test_nixl_params_are_good_for_one_use_for_one_prompt_and_for_one_salt(nixl: Pair) -> None:
    prefill, decode = nixl
    params = params_of(prefill, cache_salt="a")
    other = [{"role": "user", "content": "something else altogether"}]
    assert chat(decode, kv_transfer_params=params, cache_salt="a", messages=other).status_code == 500
    assert chat(decode, kv_transfer_params=params, cache_salt="b").status_code == 500
    assert chat(decode, kv_transfer_params=params, cache_salt="a").status_code == 200
    used = chat(decode, kv_transfer_params=params, cache_salt="a")
    assert (used.status_code, "fetched before" in used.text) == (500, True)


def test_nixl_params_of_an_earlier_life_are_refused(nixl: Pair) -> None:
    prefill, decode = nixl
    params = params_of(prefill)
    prefill.restart()
    assert prefill.side_port == params["remote_port"]
    assert "earlier life" in chat(decode, kv_transfer_params=params).text


def test_blocks_stay_pinned_until_they_are_fetched(nixl: Pair) -> None:
    prefill, decode = nixl
    params = params_of(prefill)
    assert metric(prefill, "vllm:kv_cache_usage_perc") > 0
    chat(decode, kv_transfer_params=params)
    assert metric(prefill, "vllm:kv_cache_usage_perc") == 0


def test_blocks_that_nobody_fetches_are_free_when_their_lease_ends() -> None:
    with pair_of("vllm", lease_s=100.0) as (prefill, decode):  # 0.2 of our seconds
        late = params_of(prefill)
        until_in_thread(lambda: metric(prefill, "vllm:nixl_num_kv_expired_reqs_total") == 1)
        assert metric(prefill, "vllm:kv_cache_usage_perc") == 0
        assert "expired" in chat(decode, kv_transfer_params=late).text


def test_pinned_blocks_are_in_the_way_of_others() -> None:
    small = EngineSpec(capacity_blocks=12)
    with pair_of("vllm", engine=small) as (prefill, decode):
        params = params_of(prefill)
        other = {**CHAT, "messages": [{"role": "user", "content": "other words " * 60}]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{prefill.url}/v1/chat/completions", json=other, timeout=0.2)
        assert said(chat(decode, kv_transfer_params=params)) == TEXT
        assert chat(prefill, messages=other["messages"]).status_code == 200


def test_a_prompt_that_fills_no_block_is_handed_over_since_032() -> None:
    short = [{"role": "user", "content": "hi"}]
    for version, is_handed_over in (("0.23.0", False), ("0.32.0", True)):
        with pair_of("vllm", version=version) as (prefill, decode):
            params = params_of(prefill, messages=short)
            assert (params is not None) == is_handed_over
            assert chat(decode, kv_transfer_params=params, messages=short).status_code == 200


def test_an_engine_without_the_connector_gives_and_heeds_no_params(nixl: Pair) -> None:
    with SimulatedServer(ServerSpec(model="m", speed=FAST)) as plain:
        assert params_of(plain) is None
        assert said(chat(plain, kv_transfer_params=params_of(nixl[0]))) == TEXT
