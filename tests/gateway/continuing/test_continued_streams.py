"""An endpoint dies in the middle of a stream: another goes on, the client sees one answer, the tenant pays one."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.continuing.asking import CHAT, CHAT_PATH, COMPLETION, COMPLETIONS_PATH, between, column
from tests.gateway.continuing.talking import HEAD, TEXT, WORDS, Dialect, Scene, chunked, events, heard
from tests.gateway.scripted_engine import event
from tests.gateway.test_cut_answers import DEEP, tokenize_says
from tests.hostile import Peer


def cut_points(dialect: Dialect, body: dict[str, Any]) -> list[int]:
    """Every end of an event, and two places inside each."""
    ends, at = [0], 0
    for one in events("first", dialect, body):
        ends += [at + 1, at + len(one) - 1, at + len(one)]
        at += len(one)
    return ends


def in_flight(gateway: RunningGateway) -> int:
    """Requests that loads count, at all endpoints."""
    return sum(one["in_flight_requests"] for one in gateway.http.get("/health").json()["endpoints"].values())


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "completions"])
async def test_an_answer_cut_anywhere_is_one_answer_to_its_client_and_one_row(
    chat: bool, start_gateway: StartGateway
) -> None:
    scene, asked = Scene(Dialect(chat)), CHAT if chat else COMPLETION
    cuts = cut_points(scene.dialect, asked)
    told = []
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-bb")) as (gateway, client):
        for cut in cuts:
            scene.cuts = [cut]
            answer = await client.post(CHAT_PATH if chat else COMPLETIONS_PATH, json=asked)
            said = heard(answer.content)
            assert (answer.status_code, said.text, said.done) == (200, TEXT, 1), cut
            assert len(said.ids) == len(said.created) == len(said.usages) == 1, cut
            assert (said.roles, said.finishes, said.errors) == (int(chat), ["stop"], []), cut
            told.append(said.usages[0])
        rows = await settled(gateway, len(cuts), within_s=20)
        assert in_flight(gateway) == 0
        assert gateway.metric("prefixgate_continuations_total", outcome="continued") > len(WORDS)
    # The usage that a client is told is what its tenant pays.
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [
        (usage["prompt_tokens"], usage["completion_tokens"]) for usage in told
    ]
    assert {row.prompt_tokens for row in rows} == {40}


async def test_the_second_engine_is_asked_for_the_rest_and_the_tenant_pays_once(start_gateway: StartGateway) -> None:
    scene = Scene(by_reset=True)
    scene.cuts = [len(b"".join(events("engine-a", scene.dialect, CHAT)[:4])) + 9]
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        answer = await client.post(CHAT_PATH, json=CHAT)
        [row] = await settled(gateway, 1)
        [(number,)] = column(gateway, "SELECT continuations FROM settlements")
        attempts = column(
            gateway, "SELECT outcome, prompt_tokens, cached_tokens, output_tokens FROM attempts ORDER BY ordinal"
        )
        again = gateway.metric("prefixgate_continuation_tokens_total", kind="again")
        failed = gateway.metric("prefixgate_requests_total", state="failed")
        steps = gateway.metric("prefixgate_step_seconds_count", step="answer")
        assert steps == gateway.metric("prefixgate_step_seconds_count", step="first_byte") == 1
        assert gateway.metric("prefixgate_step_seconds_sum", step="open") > 0
        assert gateway.metric("prefixgate_step_seconds_sum", step="retries") == 0
    first, second = scene.bodies
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": "The books on"}]
    assert (second["continue_final_message"], second["add_generation_prompt"]) == (True, False)
    # The scripted engine's /tokenize says 40 for every text, so 60 of 100 are left.
    assert second["max_tokens"] == 60
    assert {name: second[name] for name in ("seed", "temperature", "model")} == {
        name: first[name] for name in ("seed", "temperature", "model")
    }
    assert b": prefixgate-continued 1\n" in answer.content
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("complete", 40, 0, 40 + 6)
    assert "estimated" in row.flags
    assert number == 1
    assert attempts == [("upstream_failed", 40, None, 40), ("answered", 43, 16, 6)]
    assert (again, failed) == (40, 0)
    assert heard(answer.content).usages[0] == {
        "prompt_tokens": 40,
        "completion_tokens": 46,
        "total_tokens": 86,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_client_that_did_not_ask_for_the_usage_does_not_get_it(start_gateway: StartGateway) -> None:
    scene, asked = Scene(cuts=[700]), {**CHAT, "stream_options": None}
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        said = heard((await client.post(CHAT_PATH, json=asked)).content)
        [row] = await settled(gateway, 1)
    assert (said.text, said.usages, said.done) == (TEXT, [], 1)
    assert (row.state, row.prompt_tokens) == ("complete", 40)


@pytest.mark.parametrize(("at_most", "whole"), [(1, False), (2, True)])
async def test_an_answer_is_gone_on_with_so_often_and_no_oftener(
    at_most: int, whole: bool, start_gateway: StartGateway
) -> None:
    scene = Scene(cuts=[700, 600], by_reset=True)
    engines = [scene.engine(f"engine-{name}") for name in "abc"]
    async with between(start_gateway, *engines, continuation__at_most=at_most) as (gateway, client):
        said = heard((await client.post(CHAT_PATH, json=CHAT)).content)
        [row] = await settled(gateway, 1)
        bound = gateway.metric("prefixgate_continuations_total", outcome="bound")
        assert in_flight(gateway) == 0
    assert (said.text == TEXT, len(said.errors), bound) == (whole, int(not whole), int(not whole))
    assert (said.roles, said.done, len(said.ids)) == (1, 1, 1)
    assert row.state == ("complete" if whole else "partial")
    assert row.attempts == 1 + at_most


async def test_it_is_off_unless_configured(start_gateway: StartGateway) -> None:
    scene = Scene(cuts=[700], by_reset=True)
    async with between(
        start_gateway, scene.engine("engine-a"), scene.engine("engine-b"), continuation__enabled=False
    ) as (gateway, client):
        said = heard((await client.post(CHAT_PATH, json=CHAT)).content)
        [row] = await settled(gateway, 1)
    assert (len(said.errors), len(scene.bodies), row.state) == (1, 1, "partial")


async def test_where_nothing_had_passed_the_request_is_sent_again_and_the_head_says_so(
    start_gateway: StartGateway,
) -> None:
    scene = Scene(cuts=[9], by_reset=True)
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        answer = await client.post(CHAT_PATH, json={**CHAT, "n": 1, "logprobs": True})
        [row] = await settled(gateway, 1)
    assert answer.headers["x-prefixgate-continued"] == "1"
    assert (heard(answer.content).text, heard(answer.content).comments) == (TEXT, [])
    assert scene.bodies[0] == scene.bodies[1]
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("complete", 40, 16, len(WORDS))
    assert "estimated" not in row.flags


@pytest.mark.parametrize(("code", "goes_on"), [(500, True), (400, False)])
async def test_an_engine_that_says_it_failed_is_dead_and_one_that_blames_the_request_is_not(
    code: int, goes_on: bool, start_gateway: StartGateway
) -> None:
    scene = Scene()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        said = b"".join(events("engine-a", scene.dialect, CHAT)[:4])
        told = event({"error": {"message": "no more", "type": "X", "code": code}}) + b"data: [DONE]\n\n"
        await peer.send(HEAD + chunked(said + told) + b"0\r\n\r\n")

    async with between(start_gateway, fails, scene.engine("engine-b"), scheduling__policy="round_robin") as (
        gateway,
        client,
    ):
        said = heard((await client.post(CHAT_PATH, json=CHAT)).content)
        [row] = await settled(gateway, 1)
    assert (said.text == TEXT, len(said.errors), said.done) == (goes_on, int(not goes_on), 1)
    assert row.state == ("complete" if goes_on else "partial")


async def test_a_client_that_leaves_meanwhile_pays_what_it_got(start_gateway: StartGateway) -> None:
    scene = Scene(cuts=[700], by_reset=True)
    asked = asyncio.Event()
    first = scene.engine("engine-a")

    async def once_then_silent(peer: Peer) -> None:
        if not scene.cuts:
            await peer.read_request()
            asked.set()
            await peer.hang()
        await first(peer)

    async with between(start_gateway, once_then_silent, once_then_silent) as (gateway, client):
        async with client.stream("POST", CHAT_PATH, json=CHAT) as answer:
            got = [chunk async for chunk in _until(answer.aiter_raw(), asked)]
        [row] = await settled(gateway, 1)
        [(number,)] = column(gateway, "SELECT continuations FROM settlements")
        assert in_flight(gateway) == 0
    assert heard(b"".join(got)).text == "The books"
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("partial", 40, 0, 40)
    assert ("estimated" in row.flags, number, row.attempts) == (True, None, 2)  # the second wrote nothing


async def _until(chunks: AsyncIterator[bytes], asked: asyncio.Event) -> AsyncIterator[bytes]:
    yield await anext(chunks)
    async with asyncio.timeout(10):
        await asked.wait()


SAYS = Dialect().chunk
NAMED = {"id": "engine-a", "object": "chat.completion.chunk", "created": 8, "model": "m"}


def choice(delta: dict[str, Any], **more: Any) -> bytes:
    return event({**NAMED, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]})


REFUSALS: dict[str, tuple[str, dict[str, Any], list[bytes]]] = {
    "n": ("several_choices", {"n": 2}, []),
    "another choice": ("several_choices", {}, [choice({"content": "x"}).replace(b'"index": 0', b'"index": 1')]),
    "logprobs": ("logprobs", {"logprobs": True}, []),
    "a schema": ("structured_output", {"response_format": {"type": "json_schema", "json_schema": {}}}, []),
    "a grammar": ("structured_output", {"guided_regex": "a+"}, []),
    "a call by demand": ("structured_output", {"tools": [], "tool_choice": "required"}, []),
    "a call": ("tool_call", {}, [choice({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]})]),
    "thoughts": ("reasoning", {}, [choice({"reasoning_content": "Hm"})]),
    "a refusal": ("other_content", {}, [choice({"refusal": "no"})]),
    "echo": ("engine_alters", {"echo": True}, []),
    "a template": ("engine_alters", {"chat_template": "x"}, []),
    "usage in chunks": (
        "usage_in_chunks",
        {},
        [choice({"content": "x"}).replace(b'"created"', b'"usage": {}, "created"')],
    ),
    "half a character": ("split_character", {}, [choice({"content": " \ufffd"})]),
    "half a pair": ("split_character", {}, [choice({"content": " "}).replace(b'" "', b'"\\ud83d"')]),
    "white space": ("template", {}, [choice({"content": " "})]),
    "thinking aloud": ("template", {}, [choice({"content": "<think>x"})]),
    "no generation prompt": ("template", {"add_generation_prompt": False}, []),
    "a long event": ("torn_event", {}, [choice({"content": "x" * 70_000})[:-9]]),
    "a long stream": ("too_long", {}, [choice({"content": "x" * 60_000})] * 18),
    "no JSON": ("unreadable", {}, [b"data: {]\n\n"]),
}


async def test_what_cannot_be_gone_on_with_passes_as_ever_and_is_counted(start_gateway: StartGateway) -> None:
    streams: list[bytes] = []

    async def ends_early(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(streams[-1]) + b"0\r\n\r\n")

    counts: Counter[str] = Counter()
    async with between(start_gateway, ends_early, ends_early) as (gateway, client):
        for name, (reason, more, said) in REFUSALS.items():
            streams.append(SAYS("engine-a", "The") + b"".join(said))
            answer = await client.post(CHAT_PATH, json={**CHAT, **more})
            assert answer.content == streams[-1], name
            counts[reason] += 1
            counted = gateway.metric("prefixgate_continuations_total", outcome=reason)
            assert (counted, gateway.metric("prefixgate_continuations_total")) == (counts[reason], len(streams)), name
        rows = await settled(gateway, len(REFUSALS), within_s=20)
        assert in_flight(gateway) == 0
    assert {(row.state, row.attempts) for row in rows} == {("partial", 1)}


@pytest.mark.parametrize(
    ("owners", "reason"),
    [
        (("vllm",), "nobody_left"),
        (("vllm", "llamacpp"), "nobody_left"),
        (("vllm", "vllm"), "refused"),
        (("vllm", "vllm"), "uncounted"),
    ],
)
async def test_who_cannot_go_on_is_not_asked_and_who_will_not_changes_nothing(
    owners: tuple[str, ...], reason: str, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(cuts=[700], by_reset=True)
    talks = scene.engine("engine-a")
    if reason == "uncounted":
        tokenize_says([b'{"tokens":[1,2,3]}', DEEP], monkeypatch)

    async def refuses(peer: Peer) -> None:
        if scene.cuts:
            await talks(peer)
            return
        await peer.read_request()
        await peer.send(b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    by_turns = {"scheduling__policy": "round_robin"}
    async with between(start_gateway, *[refuses] * len(owners), owners=owners, **by_turns) as (gateway, client):
        said = heard((await client.post(CHAT_PATH, json=CHAT)).content)
        [row] = await settled(gateway, 1)
        counted = gateway.metric("prefixgate_continuations_total", outcome=reason)
        assert in_flight(gateway) == 0
    assert (said.text, len(said.errors), counted, row.state) == ("The books", 1, 1, "partial")
    assert row.output_tokens == (None if reason == "uncounted" else 40)
    assert row.attempts == 1 + (reason == "refused")


@pytest.mark.parametrize("stopped", [True, False], ids=["after the finish", "at the limit"])
async def test_where_only_the_end_is_missing_nothing_is_computed(stopped: bool, start_gateway: StartGateway) -> None:
    scene = Scene(by_reset=True)
    told = events("engine-a", scene.dialect, CHAT)
    scene.cuts = [len(b"".join(told[:-2] if stopped else told[:4]))]
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        answer = await client.post(CHAT_PATH, json={**CHAT, "max_tokens": 100 if stopped else 40})
        [row] = await settled(gateway, 1)
        assert gateway.metric("prefixgate_continuations_total", outcome="ended") == 1
    said = heard(answer.content)
    assert len(scene.bodies) == 1
    assert said.text == (TEXT if stopped else "The books on")
    assert (said.finishes, said.done, said.roles) == (["stop" if stopped else "length"], 1, 1)
    assert (said.usages[0]["prompt_tokens"], said.usages[0]["completion_tokens"]) == (40, 40)
    assert (row.state, row.prompt_tokens, row.output_tokens, row.attempts) == ("partial", 40, 40, 1)


async def test_a_prompt_of_ids_goes_on_by_the_ids_that_the_engine_told(start_gateway: StartGateway) -> None:
    def ids(of: bytes, numbers: list[int]) -> bytes:
        return of.replace(b'"index": 0', b'"index": 0, "token_ids": %s' % str(numbers).encode())

    word, bodies = Dialect(chat=False).chunk, []

    async def talks(peer: Peer) -> None:
        bodies.append((await peer.read_request()).partition(b"\r\n\r\n")[2])
        if len(bodies) == 1:
            await peer.send(HEAD + chunked(ids(word("a", "The"), [464]) + ids(word("a", " books"), [3835, 7])))
            return
        rest = ids(word("b", "."), [13]) + word("b", "", "stop") + b"data: [DONE]\n\n"
        await peer.send(HEAD + chunked(rest) + b"0\r\n\r\n")

    asked = {"model": "m", "prompt": [1, 2, 3], "stream": True, "return_token_ids": True}
    async with between(start_gateway, talks, talks) as (gateway, client):
        said = heard((await client.post(COMPLETIONS_PATH, json=asked)).content)
        [row] = await settled(gateway, 1)
    second = json.loads(bodies[1])
    assert (said.text, second["prompt"]) == ("The books.", [1, 2, 3, 464, 3835, 7])
    assert second["max_tokens"] == 16 - 3  # what OpenAI's API writes where no limit is named
    assert row.prompt_tokens == 3


async def test_zero_log_probabilities_of_a_completion_are_those_of_its_tokens(start_gateway: StartGateway) -> None:
    scene = Scene(Dialect(chat=False), cuts=[300], by_reset=True)
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        said = heard((await client.post(COMPLETIONS_PATH, json={**COMPLETION, "logprobs": 0})).content)
        assert gateway.metric("prefixgate_continuations_total", outcome="logprobs") == 1
    assert (len(said.errors), len(scene.bodies)) == (1, 1)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_translated_stream_goes_on_in_its_dialect(path: str, start_gateway: StartGateway) -> None:
    scene = Scene(cuts=[700], by_reset=True)
    asked = {"model": "m", "stream": True, "max_tokens": 100, "messages": CHAT["messages"]}
    if path == "/v1/responses":
        asked = {"model": "m", "stream": True, "max_output_tokens": 100, "input": "Where?"}
    async with between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, client):
        answer = await client.post(path, json=asked)
        [row] = await settled(gateway, 1)
    told = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    deltas = [one["delta"] for one in told if "delta" in one.get("type", "")]
    text = "".join(one if isinstance(one, str) else one.get("text", "") for one in deltas)
    assert (len(scene.bodies), text) == (2, TEXT)
    assert sum(one["type"] in ("message_start", "response.created") for one in told) == 1
    assert told[-1]["type"] in ("message_stop", "response.completed")
    assert (row.state, row.prompt_tokens) == ("complete", 40)


async def test_the_clients_library_reads_past_the_mark(start_gateway: StartGateway) -> None:
    scene = Scene(cuts=[700], by_reset=True)
    messages: Any = CHAT["messages"]
    async with (
        between(start_gateway, scene.engine("engine-a"), scene.engine("engine-b")) as (gateway, _),
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="x") as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == TEXT
