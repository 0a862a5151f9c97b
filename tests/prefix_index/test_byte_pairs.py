"""Byte-level BPE through tiktoken: the same ids as `tokenizers`, or none at all."""

import copy
import json
from array import array
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index.byte_pairs import (
    LONGEST_CHARS,
    LONGEST_PIECE_CHARS,
    PIECE_CHARS,
    BytePairs,
    byte_pairs,
    in_pieces,
)
from prefix_index.token_bytes import pack
from tests.prefix_index.prompt_data import chats, model_directory

DATA = (model_directory() / "tokenizer.json").read_bytes()
INNER = tokenizers.Tokenizer.from_buffer(DATA)
FAST = byte_pairs(DATA, INNER)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

words = st.sampled_from(
    [
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "\u3000",
        "\u00a0",
        "a",
        "the",
        " the",
        "don't",
        "'ll",
        "'LL",
        "7",
        "12",
        "½",
        "٣",
        "Ⅷ",
        *("日本", "語", "é", "e\u0301", "👩‍👩‍👧", "...", "==", "_x", "\u200b", "İ", "ﬁ"),
    ]
)
texts = st.lists(words | st.text(max_size=5), max_size=30).map("".join)


def whole(inner: tokenizers.Tokenizer, text: str) -> bytes:
    return pack(array("I", inner.encode(text, add_special_tokens=False).ids))


def changed(change: Callable[[dict[str, Any]], object]) -> tuple[bytes, tokenizers.Tokenizer]:
    """A small tokenizer of this kind, after `change`."""
    alphabet = {char: place for place, char in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    file: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {**alphabet, "ab": 256, "abc": 257, "cd": 258},
            "merges": [["a", "b"], ["ab", "c"], ["c", "d"]],
        },
    }
    file = copy.deepcopy(file)
    change(file)
    data = json.dumps(file).encode()
    return data, tokenizers.Tokenizer.from_buffer(data)


@settings(max_examples=500, deadline=None)
@given(texts)
def test_ids_are_those_of_the_tokenizer(text: str) -> None:
    assert FAST is not None
    if not any(token in text for token in ("<|", "<")):
        assert FAST.encode(text) in (whole(INNER, text), None)


def test_ids_of_the_corpus_are_those_of_the_tokenizer() -> None:
    assert FAST is not None
    for chat in chats():
        for message in chat.view.messages or ():
            content = message.get("content")
            if isinstance(content, str) and "<" not in content:
                assert FAST.encode(content) in (whole(INNER, content), None)


def test_every_code_point_is_cut_alike() -> None:
    assert FAST is not None
    points = [chr(point) for point in range(0x20000) if not 0xD800 <= point < 0xE000]
    for start in range(0, len(points), 500):
        text = " ".join(f"a{char}b {char}{char}1 {char} ." for char in points[start : start + 500])
        assert FAST.encode(text) in (whole(INNER, text), None)


def test_a_byte_without_a_token_and_a_very_long_text_are_left_to_the_library() -> None:
    assert FAST is not None
    assert FAST.encode("a\x04b") is None
    assert FAST.encode(" " * (LONGEST_CHARS + 1)) is None
    assert FAST.encode(" " * LONGEST_CHARS) == whole(INNER, " " * LONGEST_CHARS)


def split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }


def right_first(file: dict[str, Any]) -> None:
    """`aaa` of a+aa before aa+a; but no text comes to aa, a, aa, where the right pair would be joined."""
    file["model"]["vocab"] |= {"aa": 256, "aaa": 257}
    file["model"]["vocab"] = {k: v for k, v in file["model"]["vocab"].items() if k not in ("ab", "abc", "cd")}
    file["model"]["merges"] = [["a", "a"], ["a", "aa"], ["aa", "a"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: None,
        right_first,
        lambda file: file.update(normalizer={"type": "NFC"}),
        lambda file: file.update(pre_tokenizer=split(LLAMA3)),
        lambda file: file.update(pre_tokenizer=split(LLAMA3.replace("{1,3}", ""))),
        lambda file: file["model"].update(merges=["a b", "ab c", "c d"]),
        lambda file: file["model"].update(ignore_merges=True),
    ],
)
def test_files_of_the_known_kinds_are_taken(change: Callable[[dict[str, Any]], object]) -> None:
    data, inner = changed(change)
    fast = byte_pairs(data, inner)
    assert isinstance(fast, BytePairs)
    for text in ("abcd abc  12 1234 e\u0301\n\n x", "cdab'll", "", "abab abcabcd"):
        assert fast.encode(text) == whole(inner, text)


def unreachable(file: dict[str, Any]) -> None:
    """`bc` is joined first, so `abc` comes of no text, and tiktoken would make it of a and bc."""
    file["model"]["vocab"] |= {"bc": 256, "ab": 257, "abc": 258, "cd": 259}
    file["model"]["merges"] = [["b", "c"], ["a", "b"], ["ab", "c"], ["c", "d"]]


def unlisted_pair(file: dict[str, Any]) -> None:
    """The same, where a whole word that is a token is one at once."""
    unreachable(file)
    file["model"]["ignore_merges"] = True


def not_bytes(file: dict[str, Any]) -> None:
    """A character that stands for no byte."""
    file["model"]["vocab"] |= {"日": 300, "a日": 301}
    file["model"]["merges"].append(["a", "日"])


def descending(file: dict[str, Any]) -> None:
    file["model"]["vocab"] |= {"ab": 258, "cd": 256}


@pytest.mark.parametrize(
    "change",
    [
        unreachable,
        unlisted_pair,
        descending,
        not_bytes,
        lambda file: file["model"]["vocab"].update({"zz": 300}) or file["model"].update(ignore_merges=True),
        lambda file: file["model"].update(continuing_subword_prefix="##", merges=[], vocab={"a": 0}),
        lambda file: file.update(normalizer={"type": "NFKC"}),
        lambda file: file.update(pre_tokenizer=None),
        lambda file: file.update(pre_tokenizer={"type": "Sequence", "pretokenizers": []}),
        lambda file: file["model"]["vocab"].update({"cd": 257}),
        lambda file: file["pre_tokenizer"].update(add_prefix_space=True),
        lambda file: file.update(pre_tokenizer=split("[a-z]+")),
        lambda file: file.update(pre_tokenizer={**split(LLAMA3), "pretokenizers": split(LLAMA3)["pretokenizers"][1:]}),
        lambda file: file.update(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": False}, file["pre_tokenizer"]],
            }
        ),
    ],
)
def test_what_is_not_proved_equal_is_left_to_the_library(change: Callable[[dict[str, Any]], object]) -> None:
    data, inner = changed(change)
    assert byte_pairs(data, inner) is None


composing = st.lists(
    st.tuples(
        st.sampled_from(["a", "e", " ", "\n", "\u0301", "\u0328", "é", "ᄀ", "ᅡ", "ᆨ", "日", "ﬁ"]),
        st.integers(1, PIECE_CHARS),
    )
).map(lambda runs: "".join(char * length for char, length in runs))


@settings(max_examples=200, deadline=None)
@given(composing)
def test_a_text_normalised_in_pieces_is_the_text_normalised(text: str) -> None:
    nfc = tokenizers.normalizers.NFC()
    assert in_pieces(nfc, text) == nfc.normalize_str(text)


def test_no_long_piece_is_normalised_while_all_others_wait() -> None:
    nfc = tokenizers.normalizers.NFC()
    assert in_pieces(nfc, "日" * (LONGEST_PIECE_CHARS + 1)) is None
    assert in_pieces(nfc, "日本 " * LONGEST_PIECE_CHARS) == "日本 " * LONGEST_PIECE_CHARS
    data, inner = changed(lambda file: file.update(normalizer={"type": "NFC"}))
    fast = byte_pairs(data, inner)
    assert fast is not None
    assert fast.encode("é" * (LONGEST_PIECE_CHARS + 1)) is None
