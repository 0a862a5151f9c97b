"""Streams of chat chunks as the events of a response."""

from collections.abc import Sequence

import pytest

from tests.gateway.edge.responses_answers import (
    DONE,
    Json,
    answer_to,
    chunk,
    event,
    events_of,
    fragment,
    kinds,
    streamed,
    usage_event,
    whole,
)

HI = [chunk({"role": "assistant", "content": ""}), chunk({"content": "He"}), chunk({"content": "y"}), chunk({}, "stop")]
TEXT_BEGINS = ["output_item.added", "content_part.added"]
TEXT_ENDS = ["output_text.done", "content_part.done", "output_item.done"]
CALL = "function_call_arguments"


def only(events: Sequence[Json], kind: str) -> Json:
    (found,) = [one for one in events if one["type"] == f"response.{kind}"]
    return found


def test_text_comes_piece_by_piece_between_its_beginning_and_its_end() -> None:
    events = streamed(HI)
    deltas = ["output_text.delta", "output_text.delta"]
    assert kinds(events) == ["created", "in_progress", *TEXT_BEGINS, *deltas, *TEXT_ENDS, "completed"]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    places = {(one["item_id"], one["output_index"], one["content_index"]) for one in events if "content_index" in one}
    assert places == {("msg_x_0", 0, 0)}
    assert only(events, "output_text.done")["text"] == "Hey"


def test_the_response_is_running_until_its_end() -> None:
    events = streamed(HI, temperature=0.5)
    begun = only(events, "created")["response"]
    assert begun == only(events, "in_progress")["response"]
    assert (begun["status"], begun["output"], begun["usage"], begun["temperature"]) == ("in_progress", [], None, 0.5)


MESSAGES: list[tuple[Json, list[bytes]]] = [
    ({"content": "Hey"}, HI),
    (
        {"reasoning_content": "So so", "content": "Hey"},
        [chunk({"reasoning_content": "So"}), chunk({"reasoning": " so"}), *HI],
    ),
    ({}, [chunk({"role": "assistant", "content": None}), chunk({}, "stop")]),
    (
        {"content": "I look.", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]},
        [
            chunk({"content": "I look."}),
            chunk(fragment(0, id="a", name="f", arguments="")),
            chunk(fragment(0, arguments='{"x"')),
            chunk(fragment(0, arguments=":1}")),
            chunk({}, "stop"),
        ],
    ),
    (
        {
            "tool_calls": [
                {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "function": {"name": "g", "arguments": "[12]"}},
            ]
        },
        [
            chunk(fragment(0, id="a", name="f", arguments="{")),
            chunk(fragment(1, id="b", name="g", arguments="[")),
            chunk(fragment(0, arguments="}")),
            chunk(fragment(1, arguments="1")),
            chunk({"tool_calls": fragment(1, arguments="2")["tool_calls"] + fragment(1, arguments="]")["tool_calls"]}),
            chunk({}, "stop"),
        ],
    ),
    (
        {"tool_calls": [{"id": "a", "function": {"name": "now", "arguments": ""}}]},
        [chunk(fragment(0, id="a", name="now")), chunk({}, "stop")],
    ),
    ({"refusal": "No."}, [chunk({"refusal": "N"}), chunk({"refusal": "o."}), chunk({}, "stop")]),
]


@pytest.mark.parametrize(("message", "chunks"), MESSAGES)
def test_the_final_response_is_the_whole_one(message: Json, chunks: list[bytes]) -> None:
    final = streamed(chunks)[-1]
    assert final["type"] == "response.completed"
    assert final["response"] == whole(message)


@pytest.mark.parametrize(("message", "chunks"), MESSAGES)
def test_each_item_ends_as_it_stands_in_the_final_response(message: Json, chunks: list[bytes]) -> None:
    events = streamed(chunks)
    done = {one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.done"}
    assert [done[at] for at in sorted(done)] == events[-1]["response"]["output"]
    begun = {one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.added"}
    assert {at: item["id"] for at, item in begun.items()} == {at: item["id"] for at, item in done.items()}


@pytest.mark.parametrize(
    ("finish", "final"), [("length", "incomplete"), ("content_filter", "incomplete"), ("error", "failed")]
)
def test_an_answer_that_is_not_whole_ends_as_such(finish: str, final: str) -> None:
    chunks = [chunk({"reasoning": "So"}), chunk({"content": "He"}, finish)]
    last = streamed(chunks)[-1]
    assert last["type"] == f"response.{final}"
    assert last["response"] == whole({"reasoning": "So", "content": "He"}, finish)


def test_only_the_last_call_of_a_cut_answer_is_incomplete() -> None:
    chunks = [
        chunk(fragment(0, id="a", name="f", arguments="{}")),
        chunk(fragment(1, id="b", name="f", arguments="{"), "length"),
    ]
    output = streamed(chunks)[-1]["response"]["output"]
    assert [item["status"] for item in output] == ["completed", "incomplete"]


def test_everything_that_ends_the_response_waits_for_the_end() -> None:
    answer = answer_to()
    before = kinds(events_of(answer.feed(b"".join(HI) + usage_event())))
    assert before[-1] == "output_item.done"
    assert kinds(events_of(answer.end(DONE))) == ["completed"]
    assert answer.end(b"") == b""


def test_a_stream_may_come_in_one_piece_at_the_end() -> None:
    whole_stream = b"".join(HI) + usage_event() + DONE
    assert events_of(answer_to().end(whole_stream)) == streamed(HI)


def test_a_cut_stream_claims_nothing() -> None:
    answer = answer_to()
    assert kinds(events_of(answer.feed(HI[1]))) == ["created", "in_progress", *TEXT_BEGINS, "output_text.delta"]
    assert answer.end(b"") == b""
    assert answer.end(b"data: {") == b""


def test_a_stream_cut_after_the_finish_reason_is_whole_but_for_its_usage() -> None:
    answer = answer_to()
    answer.feed(b"".join(HI))
    (final,) = events_of(answer.end(b""))
    assert (final["type"], final["response"]["usage"]) == ("response.completed", None)


def test_an_end_mark_without_a_finish_reason_completes_the_response() -> None:
    answer = answer_to()
    answer.feed(b"".join(HI[:-1]))
    told = events_of(answer.end(DONE))
    assert kinds(told) == [*TEXT_ENDS, "completed"]
    assert told[-1]["response"] == whole({"content": "Hey"}, usage=None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"error": {"message": "boom", "code": 500}}, {"code": "server_error", "message": "boom"}),
        (
            {"error": {"message": "slow", "code": "rate_limit_exceeded"}},
            {"code": "rate_limit_exceeded", "message": "slow"},
        ),
        ({"error": "boom"}, {"code": "server_error", "message": "boom"}),
        ({"error": {"x": 1}}, {"code": "server_error", "message": "the model server failed without saying why"}),
    ],
)
def test_an_error_of_the_server_fails_the_response_at_its_end(error: Json, told: Json) -> None:
    answer = answer_to()
    said = answer.feed(HI[1] + event(error))
    assert kinds(events_of(said))[-1] == "output_text.delta"
    last = events_of(answer.end(DONE))[-1]
    assert (last["type"], last["response"]["status"], last["response"]["error"]) == ("response.failed", "failed", told)
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_an_error_before_anything_else_is_a_response_that_failed() -> None:
    events = events_of(answer_to().end(event({"error": {"message": "boom"}}) + DONE))
    assert kinds(events) == ["created", "in_progress", "failed"]
    assert events[-1]["response"]["id"] == "resp_made"


def test_usage_in_every_chunk_is_counted_once() -> None:
    said = b"".join(
        event(
            {
                "id": "chatcmpl-x",
                "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": finish}],
                "usage": {"prompt_tokens": 4, "completion_tokens": count},
            }
        )
        for count, finish in [(1, None), (2, None), (3, "stop")]
    )
    usage = events_of(answer_to().end(said + DONE))[-1]["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (4, 3, 7)


def test_other_choices_are_passed_over() -> None:
    chunks = [
        chunk({"content": "a"}, index=1),
        chunk({"content": "b"}),
        chunk({}, "length", index=1),
        chunk({}, "stop"),
    ]
    last = streamed(chunks)[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == "b"


def test_lines_may_end_in_any_way_and_comments_pass() -> None:
    said = b": ping\r\n\r\n" + b"".join(HI).replace(b"\n", b"\r\n") + b"event: x\n\n"
    out = answer_to().feed(said)
    assert out.startswith(b": ping\r\n\r\n")
    assert out.removeprefix(b": ping\r\n\r\n") == answer_to().feed(b"".join(HI))


def test_what_is_no_whole_comment_does_not_pass() -> None:
    """Clients would read an event without data, and half a line would take the next event's name with it."""
    answer = answer_to()
    assert answer.feed(b": a\nevent: x\nretry: 5\n\n") == b""
    begun = answer.feed(b"".join(HI))
    assert answer.feed(b": b\n: c\n\n") == b": b\n: c\n\n"
    assert begun + answer.end(b": d") == answer_to().end(b"".join(HI))


@pytest.mark.parametrize("code", ["[1]", "{}", "7", "null"])
def test_a_failure_whose_code_is_no_text_is_a_failure_of_the_server(code: str) -> None:
    failed = answer_to().end(b'data: {"error": {"message": "out of memory", "code": %s}}\n\n' % code.encode())
    assert b'"error":{"code":"server_error","message":"out of memory"}' in failed


@pytest.mark.parametrize(
    "odd",
    [
        event(5),
        event([]),
        event({}),
        event({"choices": 5}),
        event({"choices": [5, {}]}),
        event({"choices": [{"index": 0, "delta": 5, "finish_reason": 5}]}),
        chunk({"content": 5, "reasoning": [], "tool_calls": 5}),
        chunk({"tool_calls": [5]}),
        event({"usage": 5, "choices": []}),
        b"\n\n",
    ],
)
def test_what_is_no_chunk_says_nothing(odd: bytes) -> None:
    spoiled = [one for good in HI for one in (good, odd)]
    assert streamed(spoiled) == streamed(HI)


def test_half_a_character_takes_nothing_else_with_it() -> None:
    events = streamed([chunk({"content": "a\ud83d"}), chunk({"content": "b"}), chunk({}, "stop")])
    assert only(events, "output_text.done")["text"] == "a\ufffdb"


def test_a_name_that_comes_late_or_in_pieces_is_whole_before_its_call_begins() -> None:
    late = [
        chunk(fragment(0, id="a", arguments='{"x":')),
        chunk(fragment(0, arguments="1")),
        chunk(fragment(0, name="find")),
        chunk(fragment(0, arguments="}")),
        chunk({}, "stop"),
    ]
    pieces = [
        chunk(fragment(0, id="a", name="fi")),
        chunk(fragment(0, name="nd", arguments='{"x":1')),
        chunk(fragment(0, arguments="}")),
        chunk({}, "stop"),
    ]
    for chunks in (late, pieces):
        events = streamed(chunks)
        added = only(events, "output_item.added")["item"]
        assert (added["name"], added["arguments"], added["status"]) == ("find", "", "in_progress")
        assert [one["delta"] for one in events if one["type"] == f"response.{CALL}.delta"] == ['{"x":1', "}"]
        assert only(events, f"{CALL}.done")["arguments"] == '{"x":1}'


def test_a_name_said_again_is_no_other_name() -> None:
    chunks = [chunk(fragment(0, id="a", name="f", arguments=piece)) for piece in ("{", "}")]
    (item,) = streamed([*chunks, chunk({}, "stop")])[-1]["response"]["output"]
    assert (item["name"], item["arguments"]) == ("f", "{}")


@pytest.mark.parametrize("ids", [["a", "b"], [None, None]])
def test_calls_without_an_index_are_told_apart(ids: list[str | None]) -> None:
    calls: list[Json] = [
        {"function": {"name": "f", "arguments": "{}"}, **({"id": given} if given else {})} for given in ids
    ]
    chunks = [chunk({"tool_calls": [call]}) for call in calls]
    output = streamed([*chunks, chunk({}, "stop")])[-1]["response"]["output"]
    assert [item["arguments"] for item in output] == ["{}", "{}"]
    assert len({item["call_id"] for item in output}) == 2


def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    chunks = [chunk(fragment(0, id=given, name="f", arguments="{}")) for given in ("a", "b")]
    output = streamed([*chunks, chunk({}, "stop")])[-1]["response"]["output"]
    assert [item["call_id"] for item in output] == ["a", "b"]


def test_the_text_of_a_custom_tool_goes_out_when_it_is_whole() -> None:
    tools = [{"type": "custom", "name": "shell"}]
    chunks = [
        chunk(fragment(0, id="a", name="shell", arguments='{"input": "l')),
        chunk(fragment(0, arguments='s\\n"}')),
        chunk({}, "stop"),
    ]
    events = streamed(chunks, tools=tools)
    assert only(events, "custom_tool_call_input.delta")["delta"] == "ls\n"
    assert only(events, "custom_tool_call_input.done")["input"] == "ls\n"
    call = {"id": "a", "function": {"name": "shell", "arguments": '{"input": "ls\\n"}'}}
    assert events[-1]["response"] == whole({"tool_calls": [call]}, tools=tools)


def test_calls_without_arguments_keep_their_places_before_later_ones() -> None:
    """Else the client's next turn would tell them in another order than the one that the engine has cached."""
    fragments: list[Json] = [{"index": i, "id": f"c{i}", "function": {"name": f"f{i}"}} for i in range(4)]
    arguments: list[Json] = [{"index": i, "function": {"arguments": "{}"}} for i in (1, 3)]
    chunks = [*(chunk({"tool_calls": [one]}) for one in fragments + arguments), chunk({}, "tool_calls")]
    output = streamed(chunks)[-1]["response"]["output"]
    assert [(item["name"], item["arguments"]) for item in output] == [
        ("f0", ""),
        ("f1", "{}"),
        ("f2", ""),
        ("f3", "{}"),
    ]


def test_text_after_a_call_is_a_message_of_its_own() -> None:
    chunks = [
        chunk({"content": "a"}),
        chunk(fragment(0, id="c", name="f", arguments="{")),
        chunk({"content": "b"}),
        chunk(fragment(0, arguments="}")),
        chunk({"content": "c"}, "stop"),
    ]
    output = streamed(chunks)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message", "message"]
    assert output[1]["arguments"] == "{}"


def test_log_probabilities_are_those_of_the_piece_and_of_the_text() -> None:
    said: list[Json] = [{"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []} for token in "ab"]
    chunks = [chunk({"content": one["token"]}, logprobs={"content": [one]}) for one in said]
    events = streamed([*chunks, chunk({}, "stop")])
    assert [one["logprobs"] for one in events if one["type"] == "response.output_text.delta"] == [[one] for one in said]
    assert only(events, "output_text.done")["logprobs"] == said
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == said


def test_the_time_is_linear_in_the_stream() -> None:
    """Counted in bytes: each piece of text goes out as one event, and whole only where the API repeats it."""
    pieces = 2000
    stream = [chunk({"content": "x" * 10}) for _ in range(pieces)]
    answer = answer_to()
    sizes = {len(answer.feed(one)) for one in stream[2:]}
    assert max(sizes) < 3000
    assert len(answer.end(chunk({}, "stop"))) < 8 * 10 * pieces
