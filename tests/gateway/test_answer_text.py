"""What whole answers said, in every dialect: as real engines sent them, and as they might."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.model_files import ensure_model
from gateway.answer_text import AnswerText, answer_text
from gateway.relay import MOST_KEPT_BYTES, MOST_PLAIN_BYTES, PlainTee, StreamTee
from gateway.stream_format import ChatFormat
from gateway.surrogates import UNREADABLE
from gateway.types import Route
from prefix_index.prompt import load_model_text

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
ENGINES = ("vllm-0.32", "llamacpp-11434")
ROUTES = {
    "chat": Route.CHAT,
    "completions": Route.COMPLETIONS,
    "messages": Route.MESSAGES,
    "responses": Route.RESPONSES,
}


def recorded(name: str) -> AnswerText:
    """An answer that an engine gave: `vllm-0.32-chat-plain`, with `-stream` the streamed one."""
    route = next(route for dialect, route in ROUTES.items() if f"-{dialect}-" in name)
    streamed = name.endswith("-stream")
    body = (CAPTURES / f"{name}.{'sse' if streamed else 'json'}").read_bytes()
    return answer_text(route, body, streamed=streamed)


def names(about: str) -> list[str]:
    found = [path.stem for engine in ENGINES for path in CAPTURES.glob(f"{engine}-*-{about}*")]
    return sorted(name for name in found if any(f"-{dialect}-" in name for dialect in ROUTES))


@pytest.mark.parametrize("name", [name for name in names("plain") if "completions" not in name])
def test_every_engine_and_dialect_said_the_same(name: str) -> None:
    said = recorded(name)
    assert (said.text, said.reasoning, said.stopped) == ("The capital of France is Paris.", "", True)
    assert (said.choices, said.calls, said.other) == (1, False, False)


@pytest.mark.parametrize("name", [*names("cut-at-length"), *names("plain-stream"), *names("plain")])
def test_plain_and_streamed_answers_say_the_same(name: str) -> None:
    one, other = recorded(name), recorded(name.removesuffix("-stream"))
    assert (one.text, one.stopped) == (other.text, other.stopped)
    silent = name.startswith("llamacpp-11434-responses-cut")  # this engine calls them completed; their counts tell
    assert one.stopped is (silent or ("cut" not in name and "completions" not in name))


@pytest.mark.parametrize("name", [name for name in names("tool-") if "-result" not in name and "-auto" not in name])
def test_calls_of_tools_are_seen_in_every_dialect(name: str) -> None:
    assert recorded(name).calls


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["chat-plain", "chat-cut-at-length", "completions-plain"])
def test_engines_count_the_token_that_ends_an_answer(engine: str, kind: str) -> None:
    """What `held_tokens` goes by: the tokens of the text, and one more where the model ended it by itself."""
    said = recorded(f"{engine}-{kind}")
    usage = json.loads((CAPTURES / f"{engine}-{kind}.json").read_bytes())["usage"]
    assert (
        load_model_text(ensure_model("tiny")).count_tokens(said.text) + bool(said.stopped) == usage["completion_tokens"]
    )


def chat(*choices: object) -> bytes:
    return json.dumps({"choices": choices}).encode()


def said(text: str = "Hi", **more: object) -> dict[str, object]:
    return {"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": "stop"}


def response(*output: object, **more: object) -> bytes:
    return json.dumps({"status": "completed", "output": output, **more}).encode()


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_told_apart_are_no_text(name: str) -> None:
    thought = {"type": "thinking", "thinking": "Well.", "signature": ""}
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Well."}]}
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    bodies = {
        Route.CHAT: chat(said(**{name: "Well."})),
        Route.MESSAGES: json.dumps({"content": [thought, {"type": "text", "text": "Hi"}]}).encode(),
        Route.RESPONSES: response(item, message),
    }
    for route, body in bodies.items():
        answer = answer_text(route, body, streamed=False)
        assert (answer.reasoning, answer.text, answer.other) == ("Well.", "Hi", False)


def test_thoughts_and_text_of_a_stream_are_put_together() -> None:
    deltas = [{"reasoning": "We"}, {"reasoning": "ll."}, {"content": "H"}, {"content": "i"}, {"content": None}]
    stream = b"".join(b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": d}]}).encode() for d in deltas)
    answer = answer_text(Route.CHAT, stream + b": still here\n\ndata: [DONE]\n\n", streamed=True)
    assert (answer.reasoning, answer.text, answer.stopped) == ("Well.", "Hi", None)
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Well."}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]
    stream = b"".join(b"event: x\ndata: %s\n\n" % json.dumps(event).encode() for event in events)
    answer = answer_text(Route.MESSAGES, stream, streamed=True)
    assert (answer.reasoning, answer.text, answer.stopped) == ("Well.", "Hi", False)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (Route.CHAT, chat(said(tool_calls=[{"function": {"name": "f"}}]))),
        (Route.CHAT, chat(said(function_call={"name": "f"}))),
        (Route.MESSAGES, b'{"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}'),
        (Route.RESPONSES, response({"type": "function_call", "name": "f", "arguments": "{}"})),
        (Route.RESPONSES, response({"type": "custom_tool_call", "name": "f", "input": ""})),
    ],
)
def test_calls_are_noted_wherever_they_stand(route: Route, body: bytes) -> None:
    answer = answer_text(route, body, streamed=False)
    assert (answer.calls, answer.other) == (True, False)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (Route.CHAT, chat(said(refusal="No."))),
        (Route.CHAT, chat(said(audio={"id": "a"}))),
        (Route.MESSAGES, b'{"content": [{"type": "redacted_thinking", "data": "x"}]}'),
        (Route.RESPONSES, response({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]})),
        (Route.RESPONSES, response({"type": "web_search_call"})),
    ],
)
def test_what_is_neither_text_nor_a_call_is_noted(route: Route, body: bytes) -> None:
    answer = answer_text(route, body, streamed=False)
    assert (answer.calls, answer.other) == (False, True)


def test_several_answers_are_counted_and_the_first_is_read() -> None:
    other = {**said("Hello"), "index": 1}
    for choices in ([said(), other], [other, said()]):
        answer = answer_text(Route.CHAT, chat(*choices), streamed=False)
        assert (answer.choices, answer.text) == (2, "Hi")


@pytest.mark.parametrize(
    ("details", "stopped"),
    [({"reason": "max_output_tokens"}, False), ({"reason": "content_filter"}, None), ({"reason": None}, None)],
)
def test_an_incomplete_response_says_why(details: object, stopped: bool | None) -> None:
    body = response(status="incomplete", incomplete_details=details)
    assert answer_text(Route.RESPONSES, body, streamed=False).stopped is stopped


def test_a_stream_of_a_response_without_its_end_says_nothing() -> None:
    begun = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r","output":[]}}\n\n'
    answer = answer_text(Route.RESPONSES, begun, streamed=True)
    assert (answer.text, answer.stopped) == ("", None)


def test_half_a_character_becomes_the_character_for_none() -> None:
    answer = answer_text(Route.CHAT, b'{"choices": [{"message": {"content": "a\\ud83d"}}]}', streamed=False)
    assert answer.text == "a\ufffd"
    assert answer.chars == 2


@pytest.mark.parametrize("route", [Route.CHAT, Route.MESSAGES, Route.RESPONSES])
@pytest.mark.parametrize("streamed", [True, False])
@given(
    data=st.binary(max_size=60) | st.sampled_from([b"[]", b'{"choices":[{"delta":[]}]}', b'{"content":["x"]}', b"{"])
)
@settings(max_examples=30)
def test_what_is_no_answer_is_read_or_unreadable(route: Route, streamed: bool, data: bytes) -> None:
    body = b"data: " + data + b"\n\n" if streamed else data
    with suppress(*UNREADABLE):
        answer_text(route, body, streamed=streamed)


def test_a_tee_keeps_an_answer_within_a_bound() -> None:
    plain, stream = PlainTee(), StreamTee(ChatFormat(), keep_usage=True)
    for tee in (plain, stream):
        tee.feed(b"data: 1\n\n")
        tee.feed(b"data: 2\n\n")
        assert tee.kept() == b"data: 1\n\ndata: 2\n\n"
        tee.feed(b"data: " + b"x" * MOST_KEPT_BYTES + b"\n\n")
        assert tee.kept() is None
    plain.feed(b"x" * MOST_PLAIN_BYTES)  # now it keeps its tail alone
    plain.feed(b"x")
    assert plain.kept() is None
