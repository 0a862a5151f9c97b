"""Captured requests: what a finding counts, what stands for their text, and where each dialect's parts are."""

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import Cause
from prefix_index.lint import Asked, Every, Finding, Level, read_file
from prefix_index.lint.differences import parted
from prefix_index.lint.images import png_size, same_picture

FIXED = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of. " * 4
Body = dict[str, Any]


def found(requests: list[Any], asked: Asked | None = None) -> list[Finding]:
    text = "\n".join(json.dumps(one) for one in requests)
    return read_file("c.jsonl", text, asked or Asked(), is_named=True).findings


def chat(system: str, *said: str, **more: object) -> Body:
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *turns], **more}


def timed(second: int, question: str = "") -> Body:
    return chat(f"Time: 2026-03-02T09:15:{second:02}Z. {FIXED}", question or f"question {second}")


def test_the_same_fault_of_many_requests_is_one_finding_with_their_number() -> None:
    (one,) = found([timed(second) for second in range(10)])
    assert (one.rule.id, one.calls, one.of, one.every) == ("time-before-fixed", 9, 10, Every.CALL)
    assert one.lost_tokens == len(FIXED) // 4 // 16 * 16
    assert (one.place.request, one.place.part, one.cause) == (2, "messages[0]", Cause.TIME)
    assert one.place.offset == len("Time: 2026-03-02T09:15:0")


def test_no_text_of_a_request_is_in_a_finding_unless_asked_for() -> None:
    requests = [chat(f"Secret word {word}. {FIXED}", "a secret question") for word in ("alpha", "omega")]
    (one,) = found(requests)
    assert "ecret" not in repr(one) + one.subject + one.note + one.shown
    (shown,) = found(requests, Asked(show_text=True))
    assert shown.shown.startswith("omega. Be kind")


def test_digests_are_of_a_key_and_the_same_text_has_the_same() -> None:
    requests = [timed(1), timed(2)]
    (one,), (same,) = found(requests, Asked(hash_key=b"k")), found(requests, Asked(hash_key=b"k"))
    (other,) = found(requests, Asked(hash_key=b"other"))
    assert one.subject == same.subject != other.subject


def test_a_loss_is_told_of_the_earlier_request_that_could_have_been_continued() -> None:
    a, b = chat(FIXED, "first " + FIXED, "answer", "next"), chat(FIXED, "second " + FIXED, "answer", "next")
    assert found([a, b, chat(FIXED, "first " + FIXED, "answer", "next", "answer", "and now")]) == []


def test_requests_of_another_key_user_or_model_are_not_compared() -> None:
    one, two = chat(f"Mood: glad. {FIXED}", "a"), chat(f"Mood: sad. {FIXED}", "b")
    assert found([{"key": "a", "request": one}, {"key": "b", "request": two}]) == []
    assert found([{**one, "user": "a"}, {**two, "user": "b"}]) == []
    assert found([one, {**two, "model": "n"}]) == []
    assert len(found([one, two])) == 1


@pytest.mark.parametrize("wrapped", ["request", "body", "payload", "text"])
def test_bodies_are_read_out_of_rows_that_wrap_them(wrapped: str) -> None:
    rows = [{"id": n, wrapped: timed(n)} for n in range(3)]
    if wrapped == "text":
        rows = [{"id": n, "raw": json.dumps(timed(n))} for n in range(3)]
    assert [one.rule.id for one in found(rows)] == ["time-before-fixed"]


def test_a_list_of_bodies_in_one_file_is_read_too() -> None:
    text = json.dumps([timed(1), timed(2)])
    assert len(read_file("c.json", text, Asked(), is_named=True).requests) == 2


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"system": "T {t}" + FIXED, "messages": [{"role": "user", "content": "a"}]}, "system"),
        ({"system": [{"type": "text", "text": "T {t}" + FIXED}], "messages": []}, "system[0]"),
        ({"instructions": "T {t}" + FIXED, "input": "a"}, "instructions"),
        ({"input": [{"role": "developer", "content": "T {t}" + FIXED}, {"role": "user", "content": "a"}]}, "input[0]"),
        ({"messages": [{"role": "system", "content": [{"type": "text", "text": "T {t}" + FIXED}]}]}, "messages[0][0]"),
        ({"prompt": "Time: {t}" + FIXED}, "prompt"),
    ],
)
def test_parts_of_each_dialect_are_named(body: Body, part: str) -> None:
    rows = [
        {"model": "m", **json.loads(json.dumps(body).replace("{t}", f"09:15:0{n} now 2026-03-02T09:15:0{n}Z "))}
        for n in (1, 2)
    ]
    (one,) = found(rows)
    assert one.place.part == part


def test_of_a_single_request_a_literal_that_may_change_is_only_a_note() -> None:
    (one,) = found([timed(1)])
    assert (one.level, one.rule.id) == (Level.NOTE, "time-before-fixed")
    assert "second request" in one.note


def test_a_head_below_the_providers_minimum_is_told_where_one_is_given() -> None:
    assert found([chat(FIXED, "a"), chat(FIXED, "b")]) == []
    (one,) = found([chat(FIXED, "a"), chat(FIXED, "b")], Asked(minimum_tokens=1024))
    assert (one.rule.id, one.level, one.calls, one.lost_tokens) == ("under-minimum", Level.NOTE, 2, None)


def test_a_tool_drift_says_in_which_way() -> None:
    def tools(schema: Body) -> Body:
        return chat(FIXED, "a", tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])

    notes = [
        found([tools(one), tools(other)])[0].note
        for one, other in (
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
            ({"enum": ["x", "y"]}, {"enum": ["y", "x"]}),
            ({"description": "x"}, {"description": "y"}),
        )
    ]
    assert notes == ["f: keys in another order", "f: a list (enum, required) in another order", "f: other words"]


def png(width: int, height: int, rest: bytes) -> str:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + rest
    return "data:image/png;base64," + base64.b64encode(data).decode()


def test_images_are_told_apart_by_address_format_and_size_and_nothing_else() -> None:
    assert png_size(png(640, 480, b"x" * 40)) == (640, 480)
    assert png_size("data:image/png;base64,not base64!") is None
    same = same_picture(png(64, 48, b"a"), png(64, 48, b"b"), is_same_conversation=True)
    assert same == "the same conversation and size, 64 x 48 pixels"
    assert same_picture(png(64, 48, b"a"), png(65, 48, b"b"), is_same_conversation=True) is None
    assert same_picture(png(64, 48, b"a"), png(64, 48, b"b"), is_same_conversation=False) is None
    assert same_picture("data:image/png;base64,AAAA", "data:image/jpeg;base64,AAAA", is_same_conversation=True) is None


@given(st.text(alphabet="ab", max_size=30), st.text(alphabet="ab", max_size=30))
def test_two_texts_part_where_they_differ_and_meet_where_they_are_the_same_again(first: str, second: str) -> None:
    parting = parted(first, second)
    assert first[: parting.start] == second[: parting.start]
    assert first[len(first) - parting.tail :] == second[len(second) - parting.tail :]
    assert parting.start + parting.tail <= min(len(first), len(second))
    if first != second:
        assert first[parting.start : parting.start + 1] != second[parting.start : parting.start + 1]


def test_texts_of_many_steps_part_at_the_same_place() -> None:
    parting = parted("x" * 10_000 + "a" + "y" * 9_000, "x" * 10_000 + "b" + "y" * 9_000)
    assert (parting.start, parting.tail) == (10_000, 9_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tools", "name", "system", "url", "image_url", "function"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"model": JSON},
            optional={
                "messages": JSON,
                "input": JSON,
                "tools": JSON,
                "system": JSON,
                "documents": JSON,
                "cache_salt": JSON,
                "prompt": JSON,
                "response_format": JSON,
            },
        ),
        max_size=4,
    )
)
def test_no_body_makes_it_fail(requests: list[Body]) -> None:
    found([*requests, timed(1), *requests], Asked(block_tokens=1))
