"""One pattern for many tokens: leftmost, longest, and written as a tree."""

import re

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.any_of import DEEPEST, any_of


def leftmost_longest(tokens: list[str], text: str) -> list[str]:
    """Cut `text` as one would by hand: tokens at the odd places."""
    pieces, start, at = [], 0, 0
    while at < len(text):
        longest = max((token for token in tokens if token and text.startswith(token, at)), key=len, default="")
        if longest:
            pieces += [text[start:at], longest]
            start = at = at + len(longest)
        else:
            at += 1
    return [*pieces, text[start:]]


@given(st.lists(st.text("ab<|.é\n", max_size=5), max_size=12), st.text("ab<|.é\n", max_size=40))
def test_a_text_is_cut_at_the_leftmost_and_there_at_the_longest_token(tokens: list[str], text: str) -> None:
    expected = leftmost_longest(tokens, text)
    assert re.split(f"({any_of(tokens)})", text) == expected
    source = any_of(token.encode().decode("latin-1") for token in tokens)
    pieces = re.split(f"({source})".encode("latin-1"), text.encode())
    assert [piece.decode() for piece in pieces] == expected


def test_tokens_that_begin_alike_are_written_as_a_tree() -> None:
    assert any_of(["</s>", "<s>", "<|im_end|>", "<|im_start|>"]) == r"<(?:/s>|s>|\|im_(?:end\|>|start\|>))"
    assert any_of(["a", "ab", "abc"]) == "a(?:b(?:c)?)?"
    assert any_of([]) == any_of([""]) == "(?!)"


def test_tokens_nested_deeper_than_pythons_compiler_goes_are_cut_out_all_the_same() -> None:
    spaces = [" " * length for length in range(1, 20 * DEEPEST)]
    text = f"a{spaces[-1]}  b {spaces[DEEPEST]}"
    assert re.split(f"({any_of(spaces)})", text) == leftmost_longest(spaces, text)
