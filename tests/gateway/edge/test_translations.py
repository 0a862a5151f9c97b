"""What every translation makes of the answers of chat servers, however differently they write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamFailed
from gateway.sse import split_events
from tests.gateway.edge.dialects import DIALECTS, Dialect, Told, decoded_events
from tests.gateway.edge.messages_samples import DONE, Answer, call, chunk, event, streams

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
STOP = chunk({}, finish_reason="stop")
END = (STOP, DONE)


def completion(message: object, **choice: object) -> bytes:
    """A plain answer with one choice."""
    chosen = {"index": 0, "message": message, "finish_reason": "stop", **choice}
    return json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [chosen]}).encode()


def both(dialect: Dialect, said: dict[str, object]) -> Told:
    """What is heard of a message, which must be the same said plainly and as the one delta of a stream."""
    plain, streamed = dialect.plain(completion(said)), dialect.stream([chunk(said), *END])
    assert plain == streamed
    return plain


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(stream=streams())
def test_a_stream_and_a_plain_answer_say_what_the_server_said(
    dialect: Dialect, stream: tuple[Answer, list[bytes]]
) -> None:
    answer, events = stream
    ending = "cut" if answer.finish == "length" else "whole"
    expected = Told(answer.thinking, answer.text, tuple(answer.calls), ending)
    assert dialect.stream(events) == dialect.plain(answer.plain()) == expected


@each_dialect
@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_half_a_character_takes_nothing_else_with_it(dialect: Dialect, key: str) -> None:
    said = both(dialect, {key: "so\ud83d", "content": "a\ud83db"})
    assert (said.reasoning, said.text) == ("so\ufffd", "a\ufffdb")


@each_dialect
def test_content_may_be_a_list_of_parts(dialect: Dialect) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, 5, {"type": "text", "text": "b"}]
    thoughts = [{"type": "text", "text": "so"}]
    said = both(dialect, {"reasoning": thoughts, "content": parts})
    assert (said.reasoning, said.text) == ("so", "ab")


@each_dialect
def test_a_refusal_in_words_is_said_beside_a_text(dialect: Dialect) -> None:
    assert both(dialect, {"content": "Well. ", "refusal": "No."}).text == "Well. No."


@each_dialect
@pytest.mark.parametrize("arguments", [{"a": [1]}, [1, 2], {}, '{"a": [1]}', "[1, 2]"], ids=repr)
def test_arguments_may_be_text_or_the_value_itself(dialect: Dialect, arguments: object) -> None:
    said = both(dialect, {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})
    assert said.calls == (("a", "f", json.loads(arguments) if isinstance(arguments, str) else arguments),)


@each_dialect
@pytest.mark.parametrize("ids", [("a", "b"), (None, None), ("a", None)])
def test_calls_with_null_indexes_are_told_apart(dialect: Dialect, ids: tuple[str | None, str | None]) -> None:
    one_by_one = [call(None, given, "f", "{}") for given in ids]
    assert dialect.stream([*one_by_one, *END]).called == [("f", {}), ("f", {})]
    fragments = [
        {"index": None, "id": given, "function": {"name": "f", "arguments": part}}
        for given, part in zip(ids, ["[1", "[2"], strict=True)
    ]
    rest = [{"index": None, "function": {"arguments": "]"}}] * 2
    together = [chunk({"tool_calls": fragments}), chunk({"tool_calls": rest})]
    assert dialect.stream([*together, *END]).called == [("f", [1]), ("f", [2])]


@each_dialect
@pytest.mark.parametrize(
    "fragments",
    [
        [call(0, "a"), call(0, name="f"), call(0, arguments="{}")],
        [call(0, "a"), call(0, arguments="{"), call(0, name="f", arguments="}")],
        [call(0, "a"), call(0, arguments="{}"), call(0, name="f")],
        [call(0, name="f"), call(0, "a"), call(0, arguments="{}")],
        [call(0, "a", "f"), call(0, "a", "f", "{"), call(0, "a", "f", "}")],
        [call(0, "a", "f"), call(0, "x", arguments="{"), call(0, "y", arguments="}")],
        [call(None, "a", "f", ""), call(None, "a", arguments="{"), call(None, arguments="}")],
        [call(0, "a", "", ""), call(0, "", "f", "{}"), call(0, "", "", "")],
        [call(0, "a", "f", "{}")],
    ],
)
def test_name_id_and_arguments_come_in_any_order_and_are_one_call(dialect: Dialect, fragments: list[bytes]) -> None:
    assert dialect.stream([*fragments, *END]).calls == (("a", "f", {}),)


@each_dialect
def test_a_name_may_come_in_pieces(dialect: Dialect) -> None:
    fragments = [call(0, "a", "fi"), call(0, name="nd", arguments="{"), call(0, arguments="}")]
    assert dialect.stream([*fragments, *END]).calls == (("a", "find", {}),)


@each_dialect
def test_calls_that_a_server_numbers_alike_are_told_apart(dialect: Dialect) -> None:
    by_id = [call(0, "a", "f", "{}"), call(0, "b", "f", "{}")]
    assert [given for given, _, _ in dialect.stream([*by_id, *END]).calls] == ["a", "b"]
    by_name = [call(0, None, "f", "{}"), call(0, None, "g", "[]")]
    assert dialect.stream([*by_name, *END]).called == [("f", {}), ("g", [])]


@each_dialect
def test_calls_without_arguments_keep_their_places(dialect: Dialect) -> None:
    fragments = [call(number, f"c{number}", f"f{number}") for number in range(4)]
    arguments = [call(3, arguments="{}"), call(1, arguments="{}")]
    said = dialect.stream([*fragments, *arguments, *END])
    assert [name for name, _ in said.called] == ["f0", "f1", "f2", "f3"]


@each_dialect
def test_a_call_without_arguments_comes_before_the_text_that_follows_it(dialect: Dialect) -> None:
    translator = dialect.translator()
    said = translator.feed(call(0, "a", "f") + chunk({"content": "Done."})) + translator.end(b"".join(END))
    assert said.index(b'"f"') < said.index(b"Done.")


@each_dialect
def test_each_call_has_an_id_of_its_own(dialect: Dialect) -> None:
    given = ["c", "c", None]
    calls: list[dict[str, Any]] = [{"id": one, "function": {"name": "f", "arguments": "{}"}} for one in given]
    plain = dialect.plain(completion({"tool_calls": calls})).calls
    streamed = dialect.stream([*(call(at, one, "f", "{}") for at, one in enumerate(given)), *END]).calls
    assert plain == streamed
    assert len({one for one, _, _ in plain}) == 3


@each_dialect
def test_an_answer_without_a_name_gets_one_that_no_other_has(dialect: Dialect) -> None:
    nameless = json.dumps({"choices": [{"message": {"tool_calls": [{"function": {"name": "f"}}]}}]}).encode()
    first, second = (json.loads(dialect.translator().whole(nameless)) for _ in range(2))
    assert first["id"] != second["id"]
    assert dialect.hear_plain(first).calls != dialect.hear_plain(second).calls


@each_dialect
@pytest.mark.parametrize("prefix", ["chatcmpl-", "cmpl-", "gen-", "chat-", ""])
def test_the_id_of_the_answer_is_made_of_the_chats(dialect: Dialect, prefix: str) -> None:
    answer = json.loads(completion({"content": "Hi"})) | {"id": f"{prefix}x-chat-1"}
    told = json.loads(dialect.translator().whole(json.dumps(answer).encode()))
    assert told["id"].partition("_")[2] == "x-chat-1"


@each_dialect
@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"error": {"message": "No.", "type": "BadRequestError", "code": 400}}, "No."),
        ({"error": {"message": "No.", "code": None}, "choices": []}, "No."),
        ({"error": "No."}, "No."),
        ({"object": "error", "message": "No."}, "No."),
        ({"type": "error", "error": {"error": {"message": "No."}}}, "No."),
        ({"error": {"message": "not \ud83d"}}, "not \ufffd"),
        ({"error": {}}, None),
    ],
)
def test_an_error_of_the_server_ends_the_answer_as_one(dialect: Dialect, error: object, message: str | None) -> None:
    told = dialect.stream([chunk({"content": "Hi"}), event(error), chunk({"content": "ignored"}), *END])
    assert (told.text, told.ending) == ("Hi", "failed")
    assert told.error if message is None else told.error == message


@each_dialect
@pytest.mark.parametrize("event_bytes", [b"data: {\n\n", b"data: \xff\n\n", b"data: " + b"[" * 100_000 + b"\n\n"])
def test_an_event_that_cannot_be_read_makes_no_whole_answer(dialect: Dialect, event_bytes: bytes) -> None:
    told = dialect.stream([chunk({"content": "Hi"}), event_bytes, *END])
    assert (told.ending, told.error) == ("failed", "the server sent an event that is no chunk of a chat")


@each_dialect
@pytest.mark.parametrize(
    "odd",
    [
        event(5),
        event([]),
        event({}),
        event({"error": None}),
        event({"error": {}, "choices": []}),
        event({"choices": 5}),
        event({"choices": [5, {}, {"index": "0"}]}),
        event({"id": 5, "model": [], "created": "x", "choices": [{"index": 0, "delta": 5, "finish_reason": 5}]}),
        chunk({"content": 5, "reasoning": {}, "refusal": [5], "tool_calls": 5}, logprobs=5, stop_reason=[1]),
        chunk({"tool_calls": [5]}),
        event({"usage": 5, "choices": []}),
        b"event: x\n\n",
        b"\n\n",
    ],
)
def test_what_is_of_another_type_than_expected_says_nothing(dialect: Dialect, odd: bytes) -> None:
    good = [chunk({"reasoning": "so"}), chunk({"content": "H"}), chunk({"content": "i"}), *END]
    assert dialect.stream([part for one in good for part in (one, odd)]) == Told("so", "Hi")


odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "text", "message", "content", "index"]), inner)
    ),
    max_leaves=8,
)
odd_calls = st.lists(
    st.fixed_dictionaries({}, optional={"index": odd_values, "id": odd_values, "function": odd_values}), max_size=3
)
odd_messages = st.fixed_dictionaries(
    {}, optional={"content": odd_values, "reasoning": odd_values, "tool_calls": odd_values | odd_calls}
)
odd_answers = st.fixed_dictionaries(
    {"choices": st.tuples(st.fixed_dictionaries({"message": odd_messages, "delta": odd_messages}))},
    optional={name: odd_values for name in ("id", "created", "model", "usage", "object")},
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(answers=st.lists(odd_answers | odd_values, min_size=1, max_size=4))
def test_whatever_a_server_sends_becomes_events_and_never_a_fault_of_ours(
    dialect: Dialect, answers: list[object]
) -> None:
    translator = dialect.translator()
    said = translator.feed(b"".join(map(event, answers))) + translator.end(DONE)
    assert decoded_events(said)[-1]["type"] in ("message_stop", "error", "response.completed", "response.failed")
    for answer in answers:
        if isinstance(answer, dict) and "choices" in answer:
            json.loads(dialect.translator().whole(json.dumps(answer).encode()))


@each_dialect
def test_an_end_mark_alone_says_that_the_answer_is_whole(dialect: Dialect) -> None:
    assert dialect.stream([chunk({"content": "Hi"}), DONE]) == Told(text="Hi")
    assert dialect.stream([call(0, "a", "f", "{}"), DONE]) == Told(calls=(("a", "f", {}),))
    assert dialect.stream([DONE]) == Told()


@each_dialect
def test_a_finish_reason_alone_says_so_too(dialect: Dialect) -> None:
    assert dialect.stream([chunk({"content": "Hi"}), STOP]) == Told(text="Hi")
    assert dialect.stream([chunk({"content": "Hi"}), chunk({}, finish_reason="length"), DONE]).ending == "cut"


@each_dialect
@pytest.mark.parametrize("rest", [b"", b'data: {"choices":[{"ind', b": ping\n\n"])
def test_a_stream_that_breaks_off_has_no_end(dialect: Dialect, rest: bytes) -> None:
    assert dialect.stream([chunk({"content": "Hi"}), rest]).ending is None
    translator = dialect.translator()
    translator.feed(chunk({"content": "Hi"}))
    assert decoded_events(translator.end(rest)) == []


@each_dialect
@pytest.mark.parametrize("comment", [b": ping\n\n", b":\r\n\r\n", b": a\n: b\n\n"])
def test_comments_pass_at_their_place(dialect: Dialect, comment: bytes) -> None:
    events = [chunk({"content": "a"}), chunk({"content": "b"}), *END]
    translator = dialect.translator()
    assert translator.feed(comment) == comment
    said = [*split_events(translator.feed(events[0] + comment + events[1]))]
    at = said.index(comment)
    assert b'"a"' in said[at - 1]
    assert b'"b"' in said[at + 1]
    plain = dialect.translator()
    with_comments = b"".join([*said, translator.end(comment + b"".join(END))])
    assert with_comments.replace(comment, b"") == plain.feed(b"".join(events[:2])) + plain.end(b"".join(END))


@each_dialect
def test_half_a_comment_does_not_pass(dialect: Dialect) -> None:
    assert dialect.translator().feed(b": a\nevent: x\nretry: 5\n\n") == b""


@each_dialect
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":5}',
        b'{"choices":[]}',
        b'{"choices":[{"index":0}]}',
        b'{"choices":[{"index":1,"message":{}}]}',
        b'{"choices":[{"message":"Hi"}]}',
        b'{"error":{"message":"No."}}',
        b"\xff",
        b"[" * 100_000,
    ],
    ids=lambda answer: answer[:40].decode(errors="replace"),
)
def test_what_is_no_chat_completion_is_a_failure_of_the_endpoint(dialect: Dialect, answer: bytes) -> None:
    translator = dialect.translator()
    with pytest.raises(UpstreamFailed, match="no chat completion"):
        translator.whole(answer)


@each_dialect
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'{"error":{"message":"too long","code":400}}', "too long"),
        (b'{"error":"too long"}', "too long"),
        (b'{"object":"error","message":"too long"}', "too long"),
        (b'{"detail":[{"msg":"too"},{"msg":"long"}]}', "too; long"),
        (b'{"message":"not \\ud83d"}', "not \ufffd"),
        (b"too long\n", "too long"),
    ],
)
def test_a_refusal_keeps_the_words_of_the_server(dialect: Dialect, answer: bytes, message: str) -> None:
    assert dialect.refused(400, answer) == message


@each_dialect
@pytest.mark.parametrize("answer", [b"", b"{}", b'{"error":{"message":7}}', b"<html>Bad Gateway</html>", b"[" * 99_999])
def test_a_refusal_without_words_tells_its_status(dialect: Dialect, answer: bytes) -> None:
    assert "502" in dialect.refused(502, answer)
