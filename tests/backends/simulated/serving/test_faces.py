"""Simulated engines over HTTP: each answers in its engine's shapes, and refuses what its engine refuses."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.simulated.serving import DIALECTS, ServerSpec, SimulatedServer, expected_text

FAST = 500.0
"""Seconds of the engine in one: a token every 40 microseconds."""

SYSTEM = {"role": "system", "content": "cite the shelf and do not guess " * 40}
CHAT: dict[str, Any] = {"model": "m", "messages": [SYSTEM, {"role": "user", "content": "Where?"}], "max_tokens": 6}
RENDERED = (
    f"<|im_start|>system\n{SYSTEM['content']}<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, SimulatedServer]]:
    made = {name: SimulatedServer(ServerSpec(dialect=name, model="m", speed=FAST)) for name in DIALECTS}
    for one in made.values():
        one.start()
    yield made
    for one in made.values():
        one.kill()


def post(server: SimulatedServer, path: str, body: object, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=30)


def chat(server: SimulatedServer, **more: Any) -> httpx.Response:
    return post(server, "/v1/chat/completions", {**CHAT, **more})


def events(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def content(chunks: list[Any]) -> str:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_follows_from_its_prompt_whole_or_streamed(servers: dict[str, SimulatedServer], dialect: str) -> None:
    server = servers[dialect]
    whole = chat(server).json()
    chunks = events(chat(server, stream=True, stream_options={"include_usage": True}))
    assert whole["choices"][0]["message"]["content"] == content(chunks) == expected_text(RENDERED, 6)
    assert whole["choices"][0]["finish_reason"] == "length"
    assert [one["choices"][0]["finish_reason"] for one in chunks if one["choices"]][-1] == "length"
    for usage in (whole["usage"], chunks[-1]["usage"]):
        assert usage["completion_tokens"] == 6
        assert usage["total_tokens"] == usage["prompt_tokens"] + 6


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_computed_is_found_again_and_told_where_the_engine_tells_it(
    servers: dict[str, SimulatedServer], dialect: str
) -> None:
    server = servers[dialect]
    server.restart()
    cold, warm = (chat(server).json()["usage"] for _ in range(2))
    prompt_tokens = warm["prompt_tokens"]
    size = {"vllm": 16, "openai": 16, "trtllm": 32}.get(dialect, 1)
    cached = (prompt_tokens - 1) // size * size
    if dialect in ("tgi", "ollama"):
        assert "prompt_tokens_details" not in warm
    else:
        assert (cold["prompt_tokens_details"] or {}).get("cached_tokens", 0) == 0
        assert warm["prompt_tokens_details"]["cached_tokens"] == cached
    assert [one.cached_tokens for one in server.records()] == [0, cached]
    server.restart()
    chat(server)
    assert [one.cached_tokens for one in server.records()] == [0]


@pytest.mark.parametrize(
    ("dialect", "status", "where"),
    [
        ("vllm", 400, ("error", "message")),
        ("sglang", 400, ("message",)),
        ("trtllm", 400, ("message",)),
        ("tgi", 422, ("error",)),
        ("llamacpp", 400, ("error", "n_prompt_tokens")),
        ("openai", 400, ("error", "message")),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused_in_the_engines_words(
    servers: dict[str, SimulatedServer], dialect: str, status: int, where: tuple[str, ...]
) -> None:
    answer = post(servers[dialect], "/v1/completions", {"model": "m", "prompt": "a " * 9000, "max_tokens": 1})
    assert answer.status_code == status
    found = answer.json()
    for key in where:
        found = found[key]
    assert found


def test_ollama_cuts_a_prompt_that_does_not_fit(servers: dict[str, SimulatedServer]) -> None:
    answer = post(servers["ollama"], "/v1/completions", {"model": "m:latest", "prompt": "a " * 9000, "max_tokens": 1})
    assert answer.json()["usage"]["prompt_tokens"] == 8191


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_that_is_no_chat_is_refused(servers: dict[str, SimulatedServer], dialect: str) -> None:
    status = 422 if dialect == "tgi" else 400
    for body in ({"model": "m"}, {"model": "m", "messages": []}, {**CHAT, "max_tokens": "many"}, [1]):
        assert post(servers[dialect], "/v1/chat/completions", body).status_code == status
    assert httpx.post(f"{servers[dialect].url}/v1/chat/completions", content=b"{").status_code == status


@pytest.mark.parametrize("dialect", ["vllm", "ollama", "openai"])
def test_an_unknown_model_is_not_found(servers: dict[str, SimulatedServer], dialect: str) -> None:
    answer = chat(servers[dialect], model="other")
    assert answer.status_code == 404
    assert "other" in answer.json()["error"]["message"]


@pytest.mark.parametrize("field", ["prompt_cache_key", "continue_final_message", "session_id", "kv_transfer_params"])
def test_tensorrt_llm_refuses_fields_that_it_does_not_know(servers: dict[str, SimulatedServer], field: str) -> None:
    refused = chat(servers["trtllm"], **{field: "x"})
    assert refused.status_code == 400
    assert field in refused.json()["error"]
    assert chat(servers["vllm"], prompt_cache_key="x").status_code == 200


@pytest.mark.parametrize("salt", ["", "a/b", "a@b", "x" * 129])
def test_a_salt_that_vllm_would_refuse_is_refused_and_by_the_older_one_only_if_it_is_empty(salt: str) -> None:
    for version, status in (("0.32.0", 400), ("0.23.0", 400 if salt == "" else 200)):
        with SimulatedServer(ServerSpec(version=version, model="m", speed=FAST)) as server:
            assert chat(server, cache_salt=salt).status_code == status


def test_an_older_vllm_says_nothing_of_the_cache_where_nothing_was_cached() -> None:
    with SimulatedServer(ServerSpec(version="0.23.0", model="m", speed=FAST)) as server:
        cold, warm = (chat(server).json()["usage"]["prompt_tokens_details"] for _ in range(2))
        assert cold is None
        assert warm.keys() == {"cached_tokens"}
    with SimulatedServer(ServerSpec(model="m", speed=FAST, reports_cached_tokens=False)) as server:
        assert [chat(server).json()["usage"]["prompt_tokens_details"] for _ in range(2)] == [None, None]


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "trtllm"])
def test_salts_do_not_share_what_was_computed(servers: dict[str, SimulatedServer], dialect: str) -> None:
    server = servers[dialect]
    server.restart()

    def cached(salt: str) -> int:
        return int(chat(server, cache_salt=salt).json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [cached("a") > 0, cached("b") > 0, cached("a") > 0] == [False, False, True]


def test_a_slot_remembers_one_sequence_and_no_more() -> None:
    with SimulatedServer(ServerSpec(dialect="llamacpp", model="m", speed=FAST)) as server:

        def cached(word: str) -> int:
            body = {"model": "m", "prompt": f"{word} " * 50, "max_tokens": 1}
            return int(post(server, "/v1/completions", body).json()["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert [cached(word) for word in "abab"] == [0, 0, 50, 50]  # two slots
        assert [cached(word) for word in "cab"] == [0, 0, 0]  # the third took the place of the first, and so on


@pytest.mark.parametrize(("dialect", "size"), [("vllm", 16), ("sglang", 1), ("llamacpp", 1)])
def test_a_next_turn_finds_the_answer_too(servers: dict[str, SimulatedServer], dialect: str, size: int) -> None:
    server = servers[dialect]
    first = chat(server, max_tokens=60, ignore_eos=True).json()
    answer = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    asked = [*CHAT["messages"], answer, {"role": "user", "content": "And then?"}]
    usage = chat(server, messages=asked).json()["usage"]
    stored = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1
    assert usage["prompt_tokens_details"]["cached_tokens"] == stored // size * size


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_an_answer_is_continued_where_it_was_cut_off(servers: dict[str, SimulatedServer], dialect: str) -> None:
    server = servers[dialect]
    text = expected_text(RENDERED, 6)
    for cut in range(len(text) + 1):
        said = [*CHAT["messages"], {"role": "assistant", "content": text[:cut]}]
        asked = {"messages": said, "continue_final_message": True, "add_generation_prompt": False, "max_tokens": 9}
        answer = chat(server, **asked).json()["choices"][0]["message"]["content"]
        assert expected_text(RENDERED, 20).startswith(text[:cut] + answer), (cut, answer)
        assert len(answer) > 60
        if dialect == "sglang" and cut > 12:
            break


def test_a_completion_is_continued_by_sending_what_it_said(servers: dict[str, SimulatedServer]) -> None:
    text = expected_text("Once upon", 20)
    for cut in (1, 4, 9, 13, 50):
        body = {"model": "m", "prompt": "Once upon" + text[:cut], "max_tokens": 3}
        answer = post(servers["vllm"], "/v1/completions", body).json()["choices"][0]["text"]
        assert text.startswith(text[:cut] + answer)


def test_a_completion_of_token_ids_is_continued_by_its_token_ids(servers: dict[str, SimulatedServer]) -> None:
    server, ids = servers["vllm"], [5, 6, 7, 8]
    body = {"model": "m", "prompt": ids, "max_tokens": 6, "return_token_ids": True}
    whole = post(server, "/v1/completions", body).json()["choices"][0]
    part = post(server, "/v1/completions", {**body, "max_tokens": 2}).json()["choices"][0]
    rest = post(server, "/v1/completions", {**body, "prompt": ids + part["token_ids"], "max_tokens": 4}).json()
    assert part["text"] + rest["choices"][0]["text"] == whole["text"]


def test_an_answer_ends_by_itself_and_its_continuation_at_the_same_place(servers: dict[str, SimulatedServer]) -> None:
    body = {**CHAT, "max_tokens": 200}
    whole = post(servers["vllm"], "/v1/chat/completions", body).json()
    said = whole["choices"][0]["message"]["content"]
    assert whole["choices"][0]["finish_reason"] == "stop"
    open_end = {"role": "assistant", "content": said[:30]}
    more = {"messages": [*CHAT["messages"], open_end], "continue_final_message": True, "add_generation_prompt": False}
    rest = post(servers["vllm"], "/v1/chat/completions", {**body, **more}).json()["choices"][0]
    assert (open_end["content"] + rest["message"]["content"], rest["finish_reason"]) == (said, "stop")
    longer = post(servers["vllm"], "/v1/chat/completions", {**body, "ignore_eos": True}).json()
    assert longer["usage"]["completion_tokens"] == 200


def test_llamacpp_goes_on_with_an_assistants_last_message_and_refuses_two(servers: dict[str, SimulatedServer]) -> None:
    text, server = expected_text(RENDERED, 12), servers["llamacpp"]
    said = {"role": "assistant", "content": text[:20]}
    answer = chat(server, messages=[*CHAT["messages"], said]).json()["choices"][0]["message"]["content"]
    assert text.startswith(text[:20] + answer)
    assert chat(server, messages=[*CHAT["messages"], said, said]).status_code == 400


def test_several_choices_count_the_prompt_once(servers: dict[str, SimulatedServer]) -> None:
    usage = chat(servers["vllm"], n=3).json()["usage"]
    chunks = events(chat(servers["vllm"], n=3, stream=True, stream_options={"include_usage": True}))
    assert usage["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"] == 18
    assert usage["prompt_tokens"] == chat(servers["vllm"]).json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("dialect", "status"), [("vllm", 503), ("sglang", 503), ("tgi", 429), ("ollama", 503), ("openai", 429)]
)
def test_who_comes_when_the_queue_is_full_is_refused(dialect: str, status: int) -> None:
    with SimulatedServer(ServerSpec(dialect=dialect, model="m", max_queued=0)) as server:
        assert chat(server).status_code == status


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_is_required_where_the_engine_requires_it(dialect: str) -> None:
    with SimulatedServer(ServerSpec(dialect=dialect, model="m", speed=FAST, api_key="k")) as server:
        assert chat(server).status_code == 401
        assert post(server, "/v1/chat/completions", CHAT, authorization="Bearer k").status_code == 200
