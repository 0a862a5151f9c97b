"""Prompts on one engine, answers on another: the right sequence works, every wrong one is refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from backends.simulated import EngineSpec, Role
from backends.simulated.serving import ServerSpec, SimulatedServer, expected_text

FAST = 500.0
WORDS = "cite the shelf and do not guess " * 20
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": WORDS}], "max_tokens": 6}
TEXT = expected_text(f"<|im_start|>user\n{WORDS}<|im_end|>\n<|im_start|>assistant\n", 6)
ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}

Pair = tuple[SimulatedServer, SimulatedServer]


@contextmanager
def pair_of(dialect: str, **more: Any) -> Iterator[Pair]:
    common = {"dialect": dialect, "model": "m", "speed": FAST, "lease_s": 5000.0, **more}
    prefill = SimulatedServer(ServerSpec(role=Role.PREFILL, **common))
    with prefill, SimulatedServer(ServerSpec(role=Role.DECODE, **common)) as decode:
        yield prefill, decode


def chat(server: SimulatedServer, **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, **more}, timeout=30)


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def metric(server: SimulatedServer, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    [line] = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])


# ---- vLLM


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


def test_blocks_stay_pinned_until_they_are_fetched_or_expire() -> None:
    with pair_of("vllm", lease_s=100.0) as (prefill, decode):  # 0.2 of our seconds
        params = params_of(prefill)
        assert metric(prefill, "vllm:kv_cache_usage_perc") > 0
        chat(decode, kv_transfer_params=params)
        assert metric(prefill, "vllm:kv_cache_usage_perc") == 0
        late = params_of(prefill)
        while metric(prefill, "vllm:kv_cache_usage_perc") > 0:
            pass
        assert metric(prefill, "vllm:nixl_num_kv_expired_reqs_total") == 1
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


# ---- SGLang


@pytest.fixture
def bootstrap() -> Iterator[Pair]:
    with pair_of("sglang") as pair:
        yield pair


def both(
    pair: Pair, prefill_more: dict[str, Any], decode_more: dict[str, Any]
) -> tuple[httpx.Response, httpx.Response]:
    answers: dict[str, httpx.Response] = {}
    thread = threading.Thread(target=lambda: answers.update(prefill=chat(pair[0], **prefill_more)))
    thread.start()
    answers["decode"] = chat(pair[1], **decode_more)
    thread.join(30)
    return answers["prefill"], answers["decode"]


def room(pair: Pair, number: int, **more: Any) -> dict[str, Any]:
    port = pair[0].side_port
    return {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": number, **more}


def test_two_legs_meet_in_a_room_whichever_comes_first_and_the_answer_is_the_decode_engines(bootstrap: Pair) -> None:
    for number in (7, 2**63 - 1):
        prefill, decode = both(bootstrap, room(bootstrap, number), room(bootstrap, number))
        assert said(decode) == TEXT
        assert prefill.json()["usage"]["completion_tokens"] == 1
    assert cached(decode) == decode.json()["usage"]["prompt_tokens"] - 1  # found at the prefill engine
    info = httpx.get(f"{bootstrap[0].url}/server_info", timeout=30).json()
    assert (info["disaggregation_mode"], info["disaggregation_bootstrap_port"]) == ("prefill", bootstrap[0].side_port)


def test_a_leg_alone_waits_and_fails() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:  # 0.1 of our seconds
        for server in pair:
            alone = chat(server, **room(pair, 1 if server is pair[0] else 2))
            assert (alone.status_code, "timed out" in alone.text) == (500, True)


def test_a_room_that_the_prefill_engine_gave_up_is_of_no_use() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:
        assert chat(pair[0], **room(pair, 1)).status_code == 500
        assert "given up" in chat(pair[1], **room(pair, 1)).text


def test_wrong_rooms_hosts_and_ports_are_refused() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:
        good = room(pair, 1)
        assert [one.status_code for one in both(pair, good, {**good, "bootstrap_room": 2})] == [500, 500]
        assert chat(pair[1], **{**good, "bootstrap_port": 1}).status_code == 500
        assert chat(pair[0], **{**good, "bootstrap_port": 1}).status_code == 400
        for wrong in (
            {"bootstrap_room": -1},
            {"bootstrap_room": "x"},
            {"bootstrap_room": None},
            {"bootstrap_host": ""},
        ):
            assert [chat(server, **{**good, **wrong}).status_code for server in pair] == [400, 400]


def test_a_room_is_used_once(bootstrap: Pair) -> None:
    both(bootstrap, room(bootstrap, 5), room(bootstrap, 5))
    assert "in use" in chat(bootstrap[0], **room(bootstrap, 5)).text
    assert "fetched before" in chat(bootstrap[1], **room(bootstrap, 5)).text


def test_an_engine_of_a_split_pair_answers_nobody_alone_and_another_ignores_rooms(bootstrap: Pair) -> None:
    for server in bootstrap:
        assert chat(server).status_code == 400
    with SimulatedServer(ServerSpec(dialect="sglang", model="m", speed=FAST)) as plain:
        assert said(chat(plain, **room(bootstrap, 3))) == TEXT


# ---- TensorRT-LLM


@pytest.fixture
def context_first() -> Iterator[Pair]:
    with pair_of("trtllm") as pair:
        yield pair


def context(pair: Pair, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the generation server needs: its params, and the prompt as token ids."""
    asked = {"request_type": "context_only", "disagg_request_id": 77}
    answer = chat(pair[0], disaggregated_params=asked, **more).json()
    params = answer["choices"][0]["disaggregated_params"]
    told = {**params, "request_type": "generation_only", "ctx_usage": answer["usage"]}
    return told, {"prompt_token_ids": answer["prompt_token_ids"]}


def test_the_generation_server_goes_on_from_the_context_servers_token(context_first: Pair) -> None:
    for expected in (0, 128):
        params, ids = context(context_first)
        answer = chat(context_first[1], disaggregated_params=params, **ids)
        assert (said(answer), cached(answer)) == (TEXT, expected)
    assert len(params["first_gen_tokens"]) == 1


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"ctx_request_id": 5}, 500),
        ({"first_gen_tokens": [1]}, 500),
        ({"disagg_request_id": 78}, 500),
        ({"encoded_opaque_state": "abc"}, 400),
        ({"encoded_opaque_state": None}, 400),
        ({"ctx_request_id": None}, 400),
        ({"request_type": "something"}, 400),
    ],
)
def test_wrong_params_are_refused_and_the_right_ones_work_once(
    context_first: Pair, wrong: dict[str, object], status: int
) -> None:
    params, ids = context(context_first)
    assert chat(context_first[1], disaggregated_params={**params, **wrong}, **ids).status_code == status
    assert chat(context_first[1], disaggregated_params=params).status_code == 400  # not as token ids
    assert chat(context_first[1], disaggregated_params=params, **ids).status_code == 200
    assert "fetched before" in chat(context_first[1], disaggregated_params=params, **ids).text


def test_a_context_only_request_is_no_stream_and_needs_a_server_that_splits(context_first: Pair) -> None:
    asked = {"request_type": "context_only", "disagg_request_id": 1}
    assert chat(context_first[0], disaggregated_params=asked, stream=True).status_code == 400
    assert chat(context_first[0], disaggregated_params=asked, n=2).status_code == 400
    with SimulatedServer(ServerSpec(dialect="trtllm", model="m", speed=FAST)) as plain:
        assert chat(plain, disaggregated_params=asked).status_code == 400
