"""What is looked up: the longest run that stood there before, the last one of several, loops as loops."""

from hypothesis import given
from hypothesis import strategies as st

from backends.reference.speculation.lookup import LONGEST, SHORTEST, Seen


def naive(tokens: list[int], count: int) -> list[int]:
    for length in range(LONGEST, SHORTEST - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if len(tokens) > length and tokens[end - length : end] == tokens[-length:]:
                longer = list(tokens)
                for place in range(end, end + count):
                    longer.append(longer[place])
                return longer[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(1, 4), max_size=12), st.integers(0, 6))
def test_a_guess_is_what_a_search_through_all_tokens_finds(tokens: list[int], steps: list[int], count: int) -> None:
    seen = Seen()
    known = 0
    for step in [*steps, len(tokens)]:
        known = min(known + step, len(tokens))
        assert seen.guess(tokens[:known], count) == naive(tokens[:known], count)


def test_a_loop_is_drafted_as_a_loop() -> None:
    assert Seen().guess([9, 1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]
