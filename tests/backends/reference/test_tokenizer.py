"""Text in pieces: never half a character, never a stop string."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.model_files import ensure_model
from backends.reference.tokenizer import REPLACEMENT, ModelTokenizer, StopFinder, TextStream

TOKENIZER = ModelTokenizer(ensure_model("tiny"))
UNICODE = "naïve 日本語 👩‍👩‍👧‍👦 مرحبا 🇩🇪 ok"


def pieces(tokens: list[int]) -> list[str]:
    stream = TextStream(TOKENIZER)
    return [*(stream.push(token) for token in tokens), stream.flush()]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 49_151), max_size=30))
def test_the_pieces_of_any_tokens_make_the_whole_text(tokens: list[int]) -> None:
    assert "".join(pieces(tokens)) == TOKENIZER.decode(tokens)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_no_piece_of_real_text_holds_a_broken_character(text: str) -> None:
    tokens = TOKENIZER.encode(text, add_special_tokens=False)
    shown = pieces(tokens)
    assert "".join(shown) == TOKENIZER.decode(tokens)
    # The vocabulary lacks a few bytes that only unassigned characters need: such text does not come back whole.
    if TOKENIZER.decode(tokens) == text and REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in shown)


def test_an_emoji_appears_with_its_last_token() -> None:
    tokens = TOKENIZER.encode("🦜", add_special_tokens=False)
    assert len(tokens) > 1
    assert pieces(tokens) == [*[""] * (len(tokens) - 1), "🦜", ""]


def test_special_tokens_count_but_are_not_shown() -> None:
    tokens = TOKENIZER.encode("a<|im_end|>b", add_special_tokens=False)
    assert "".join(pieces(tokens)) == "ab"
    assert TOKENIZER.decode(tokens, skip_special_tokens=False) == "a<|im_end|>b"


def test_text_survives_the_way_through_tokens() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(UNICODE, add_special_tokens=True)) == UNICODE


def test_the_tokens_are_the_model_familys() -> None:
    assert TOKENIZER.encode("Hello 123", add_special_tokens=True) == [19556, 216, 33, 34, 35]
    assert TOKENIZER.token_strings([19556, 216]) == ["Hello", "Ġ"]
    assert TOKENIZER.vocab_size == 49_152


def show(stop: list[str], text: str) -> tuple[str, str | None]:
    """Push `text` character by character."""
    finder = StopFinder(stop)
    shown = ""
    for character in text:
        more, found = finder.push(character)
        shown += more
        if found:
            return shown, found
    return shown + finder.flush(), None


@settings(max_examples=300, deadline=None)
@given(stop=st.lists(st.text("ab", min_size=1, max_size=3), max_size=3), text=st.text("abc", max_size=12))
def test_text_ends_where_the_first_stop_string_begins(stop: list[str], text: str) -> None:
    shown, found = show(stop, text)
    # Character by character, the stop string that ends first is found first.
    ends = [(at + len(one), at) for one in stop if (at := text.find(one)) >= 0]
    assert (found is not None) == bool(ends)
    if found is None:
        assert shown == text
    else:
        end = min(ends)[0]
        starts = [end - len(one) for one in stop if text[:end].endswith(one)]
        assert shown == text[: min(starts)]


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    finder = StopFinder(["END"])
    assert finder.push("one E") == ("one", None)
    assert finder.push("N") == (" ", None)
    assert finder.push("C") == ("E", None)
    assert finder.flush() == "NC"


@pytest.mark.parametrize("piece", ["", "x", "a longer piece"])
def test_without_stop_strings_nothing_is_held_back(piece: str) -> None:
    assert StopFinder([]).push(piece) == (piece, None)
