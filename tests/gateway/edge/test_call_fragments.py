"""Which call a fragment belongs to, and when its arguments are whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.call_fragments import CallFragments, CallIds, JsonScan
from gateway.edge.chat_answer import CallPiece
from tests.gateway.edge.messages_samples import arguments, cut, places


def numbers(*pieces: CallPiece, chunk_size: int = 1) -> list[int]:
    """The call that each fragment belongs to, where `chunk_size` of them come in one chunk."""
    fragments = CallFragments()
    return [fragments.take(piece, at % chunk_size).number for at, piece in enumerate(pieces)]


def test_the_index_tells() -> None:
    pieces = [CallPiece(0, "a", "f"), CallPiece(1, "b", "g"), CallPiece(0, arguments="{"), CallPiece(1, arguments="{")]
    assert numbers(*pieces) == [0, 1, 0, 1]


def test_where_the_first_fragment_alone_has_an_index_the_place_stands_for_it() -> None:
    assert numbers(CallPiece(0, "a", "f"), CallPiece(arguments="{"), CallPiece(arguments="}")) == [0, 0, 0]


def test_without_an_index_the_place_in_the_chunk_tells() -> None:
    named = [CallPiece(name="f"), CallPiece(name="g")]
    more = [CallPiece(arguments="{"), CallPiece(arguments="[")]
    assert numbers(*named, *more, chunk_size=2) == [0, 1, 0, 1]


def test_without_an_index_a_known_id_tells_before_the_place() -> None:
    pieces = [CallPiece(id="a", name="f"), CallPiece(id="b", name="g"), CallPiece(id="a", arguments="{")]
    assert numbers(*pieces) == [0, 1, 0]


@pytest.mark.parametrize(
    ("second", "number"),
    [
        (CallPiece(0, "b", "f"), 1),
        (CallPiece(0, "a", "g"), 0),
        (CallPiece(0, "b"), 0),
        (CallPiece(0, "", "g"), 1),
        (CallPiece(0, "", "f"), 0),
        (CallPiece(None, "", "f"), 1),
    ],
)
def test_after_a_whole_call_another_name_begins_another(second: CallPiece, number: int) -> None:
    assert numbers(CallPiece(0, "a", "f", "{}"), second) == [0, number]


def test_a_name_among_arguments_that_are_not_whole_begins_nothing() -> None:
    assert numbers(CallPiece(name="f", arguments="{"), CallPiece(name="f", arguments="}")) == [0, 0]


def test_a_name_grows_until_it_is_told() -> None:
    fragments = CallFragments()
    call = fragments.take(CallPiece(0, name="fi"), 0)
    assert not call.ready
    fragments.take(CallPiece(0, "a", "nd", "{"), 0)
    assert (call.id, call.name, call.ready) == ("a", "find", True)
    assert fragments.due(call) == [call]
    fragments.take(CallPiece(0, "", "x", "}"), 0)
    assert (call.id, call.name, call.told, call.scan.whole) == ("a", "find", True, True)


def test_calls_are_due_in_order_and_once_and_the_nameless_at_the_end() -> None:
    fragments = CallFragments()
    calls = [fragments.take(CallPiece(number, name=name), 0) for number, name in enumerate(["f", "", "g", "h"])]
    assert fragments.due(calls[2]) == [calls[0], calls[2]]
    assert fragments.due() == [calls[3]]
    assert fragments.rest() == [calls[1]]
    assert fragments.rest() == fragments.due() == []


def test_ids_are_given_once() -> None:
    ids = CallIds()
    assert [ids.take("a", "x"), ids.take("a", "y"), ids.take("", "z")] == ["a", "y", "z"]


@given(arguments, places)
def test_json_is_whole_at_its_end_and_nowhere_before(value: dict[str, object], at: list[int]) -> None:
    scan = JsonScan()
    pieces = [piece for piece in cut(json.dumps(value, ensure_ascii=False), at) if piece]
    for piece in pieces[:-1]:
        scan.add(piece)
        assert scan.open
        assert not scan.whole
    scan.add(pieces[-1])
    assert scan.whole


@given(st.text(alphabet='{}[]"\\a '), places)
def test_how_json_is_cut_makes_no_difference(text: str, at: list[int]) -> None:
    at_once, in_pieces = JsonScan(), JsonScan()
    at_once.add(text)
    for piece in cut(text, at):
        in_pieces.add(piece)
    assert (at_once.whole, at_once.open) == (in_pieces.whole, in_pieces.open)
