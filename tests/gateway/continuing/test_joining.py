"""Two streams as one, without sockets: every cut, every way in which bytes may come, and engines of other habits."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.continuing import CannotContinue, Carried, NotContinued, Said, said_in
from gateway.continuing.joining import FailuresHeld, ending
from gateway.relay import StreamTee
from tests.gateway.continuing.talking import TEXT, WORDS, Dialect, events, heard
from tests.gateway.scripted_engine import event

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Where?"}], "stream_options": {"include_usage": True}}


def carried(said: Said, tee: StreamTee, **more: Any) -> Carried:
    given: dict[str, Any] = {
        "number": 1,
        "request": None,
        "said": said,
        "tee": tee,
        "prompt_tokens": 40,
        "cached_tokens": 32,
        "relayed_tokens": 3,
        "translator": None,
        "head_sent": True,
    }
    return Carried(**{**given, **more})


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True) if start < end]


FIRST = {chat: b"".join(events("first", Dialect(chat), {**ASKED, "prompt": "Where?"})) for chat in (True, False)}


@given(
    st.booleans(),
    st.integers(0, 2000),
    st.lists(st.integers(0, 2000), max_size=4),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_whatever_the_cut_and_the_chunks_a_client_sees_one_stream(
    chat: bool, cut: int, first_cuts: list[int], second_cuts: list[int]
) -> None:
    dialect, stream = Dialect(chat), FIRST[chat]
    dead = StreamTee(FailuresHeld(), keep_usage=True)
    client = b"".join(map(dead.feed, pieces(stream[:cut], first_cuts)))
    kept = dead.kept()
    assert kept is not None
    said = said_in(kept)
    passed = heard(client)
    assert (said.text, said.role, said.finished) == (passed.text, passed.roles > 0, bool(passed.finishes))
    if said.finished or not client:
        return
    body = {**ASKED, "prompt": "Where?" + said.text}
    if chat and said.text:
        body |= {"messages": [*ASKED["messages"], {"content": said.text}], "continue_final_message": True}
    second = b"".join(events("the second", dialect, body))
    outlet = carried(said, dead).outlet(keep_usage=True)
    client += b"".join(map(outlet.feed, pieces(second, second_cuts))) + outlet.held()
    told = heard(client)
    assert (told.text, told.roles, told.finishes, told.done) == (TEXT, int(chat), ["stop"], 1)
    assert (told.ids, told.created) == ({"first"}, {len("first")})
    assert told.comments == [": prefixgate-continued 1"]
    left = len(WORDS) - len([word for word in WORDS if said.text.startswith(TEXT[: TEXT.index(word) + len(word)])])
    assert [one["completion_tokens"] for one in told.usages] == [left + 3 if said.text else left]


def joined(first: list[bytes], second: list[bytes], **more: Any) -> bytes:
    dead = StreamTee(FailuresHeld(), keep_usage=True)
    client = b"".join(map(dead.feed, first))
    outlet = carried(said_in(dead.kept() or b""), dead, **more).outlet(keep_usage=True)
    return client + b"".join(map(outlet.feed, second)) + outlet.held()


def chunk(name: str, delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish", None)}
    return event({"id": name, "created": 5, "choices": [choice], **more})


def test_a_role_beside_the_first_text_is_taken_out_and_the_text_stays() -> None:
    first = [chunk("a", {"role": "assistant", "content": "The"})]
    second = [chunk("b", {"role": "assistant", "content": " books"}), chunk("b", {"content": "."}, finish="stop")]
    told = heard(joined(first, second))
    assert (told.text, told.roles, told.ids, told.finishes) == ("The books.", 1, {"a"}, ["stop"])


def test_a_role_that_the_client_has_not_heard_stays() -> None:
    told = heard(joined([b": alive\n\n"], [chunk("b", {"role": "assistant", "content": "The"})]))
    assert (told.text, told.roles, told.ids) == ("The", 1, {"b"})


def test_a_text_that_looks_like_an_id_a_role_or_a_usage_is_left_alone() -> None:
    odd = 'say "id": "b", "role": "x", "usage": {"prompt_tokens": 9}'
    told = heard(joined([chunk("a", {"role": "assistant", "content": "I "})], [chunk("b", {"content": odd})]))
    assert (told.text, told.ids) == ("I " + odd, {"a"})


@pytest.mark.parametrize("separators", [(",", ":"), (", ", " : ")])
def test_an_id_in_other_spacing_and_the_ids_of_the_prompt_are_the_first_ones(separators: tuple[str, str]) -> None:
    first = [chunk("a", {"content": "I"}, prompt_token_ids=[1, 2])]
    named = {"created": 66, "prompt_token_ids": [1, 2, 3], "choices": [], "id": "b"}
    opening = json.dumps(named, separators=separators)
    later = json.dumps({"created": 66, "choices": [], "id": "b"}, separators=separators)
    client = joined(first, [f"data:{opening}\r\n\r\n".encode(), f"data: {later}\n\n".encode()])
    assert (heard(client).ids, heard(client).created) == ({"a"}, {5})
    assert client.count(b"prompt_token_ids") == 1


def test_usage_beside_the_finish_is_that_of_the_whole_answer_too() -> None:
    usage = {"prompt_tokens": 41, "completion_tokens": 2, "total_tokens": 43}
    told = heard(joined([chunk("a", {"content": "I"})], [chunk("b", {}, finish="stop", usage=usage)]))
    assert told.usages == [
        {
            "prompt_tokens": 40,
            "completion_tokens": 5,
            "total_tokens": 45,
            "prompt_tokens_details": {"cached_tokens": 32},
        }
    ]


@pytest.mark.parametrize("choices", [5, "x", {"a": 1}, None])
def test_choices_that_are_no_list_pass(choices: object) -> None:
    odd = event({"id": "b", "choices": choices, "usage": {"prompt_tokens": 9}})
    client = joined([chunk("a", {"content": "I"})], [odd])
    assert json.loads(client.split(b"data: ")[-1])["choices"] == choices


def test_a_prompt_that_was_not_counted_is_what_the_second_one_was_without_the_text() -> None:
    usage = {"prompt_tokens": 41, "completion_tokens": 2}
    second = [chunk("b", {}, finish="stop"), event({"id": "b", "created": 5, "choices": [], "usage": usage})]
    told = heard(joined([chunk("a", {"content": "I"})], second, prompt_tokens=None, cached_tokens=None))
    assert told.usages == [{"prompt_tokens": 38, "completion_tokens": 5, "total_tokens": 43}]


@pytest.mark.parametrize("chat", [True, False])
def test_an_end_of_our_own_is_in_the_words_of_the_stream(chat: bool) -> None:
    opening = Dialect(chat).chunk("first", "The").removeprefix(b"data: ").strip()
    told = heard(ending(Said(text="The", opening=opening), {"prompt_tokens": 1}, limit_reached=True))
    assert (told.ids, told.finishes, told.usages, told.done) == ({"first"}, ["length"], [{"prompt_tokens": 1}], 1)
    assert heard(ending(Said(), None, limit_reached=False)).done == 1


def test_token_ids_are_known_only_where_each_text_has_its_own() -> None:
    def word(text: str, ids: list[int] | None) -> bytes:
        return event({"choices": [{"index": 0, "text": text, "token_ids": ids, "finish_reason": None}]})

    assert said_in(word("a", [1]) + word("b", [2, 3])).token_ids == (1, 2, 3)
    assert said_in(word("a", [1]) + word("", [2])).token_ids is None, "a character has begun"
    assert said_in(word("a", [1]) + word("", [2]) + word("b", [3])).token_ids == (1, 2, 3)
    assert said_in(word("a", [1]) + word("b", None)).token_ids is None
    assert Said(token_ids=(1,)).then(Said(token_ids=None)).token_ids is None


def test_an_error_about_the_request_is_named() -> None:
    with pytest.raises(CannotContinue) as raised:
        said_in(event({"error": {"code": 400}}))
    assert raised.value.reason is NotContinued.BLAMED
    assert str(raised.value) == "blamed"
