"""What of a text was there before, and where it says something else."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.divergence.sketches import MOST_CHARS, MOST_PIECES, difference, pieces_of, resemblance, sketch_of

RULES = [f"Rule {number}: what is said there holds for case {number} only." for number in range(40)]


def test_the_change_is_found_and_what_is_equal_behind_it() -> None:
    before = sketch_of(pieces_of("\n".join([*RULES[:10], "Today is Monday the first.", *RULES[10:]])))
    now = pieces_of("\n".join([*RULES[:10], "Today is Friday the fifth.", *RULES[10:]]))
    found = difference(now, before)
    assert found is not None
    assert now[found.place] == "Today is Friday the fifth.\n"
    assert found.offset == sum(len(rule) + 1 for rule in RULES[:10])
    assert found.equal_chars == len("\n".join(RULES[10:]))
    assert resemblance(now, before) > 0.8


def test_another_text_has_no_difference_nor_has_the_same() -> None:
    before = sketch_of(pieces_of("\n".join(RULES)))
    assert difference(pieces_of("\n".join(f"Something else, {number}" for number in range(40))), before) is None
    assert difference(pieces_of("\n".join(RULES)), before) is None


def test_a_text_without_lines_is_cut_at_its_words() -> None:
    words = [f"word{number}" for number in range(400)]
    before = sketch_of(pieces_of(" ".join(["12:00:01", *words])))
    found = difference(pieces_of(" ".join(["12:00:02", *words])), before)
    assert found is not None
    assert found.place == 0
    assert found.equal_chars > 2500


def test_brackets_and_empty_lines_are_no_likeness() -> None:
    before = sketch_of(pieces_of("{\n}\n\n" * 50 + "one thing"))
    found = difference(pieces_of("another thing" + "\n{\n}\n\n" * 50), before)
    assert found is None


@given(st.text(alphabet="ab .\n。", max_size=4000) | st.text(max_size=200), st.text(alphabet="ab .\n", max_size=400))
def test_no_text_has_more_pieces_than_are_kept_and_a_difference_lies_within_it(now: str, before: str) -> None:
    pieces = pieces_of(now)
    assert len(pieces) <= MOST_PIECES
    assert "".join(pieces) == now.replace("\0", "")
    found = difference(pieces, sketch_of(pieces_of(before)))
    if found is not None:
        assert found.offset >= 0
        assert found.offset + found.equal_chars <= len(now)


def test_of_a_text_without_end_a_part_is_read() -> None:
    assert sketch_of(pieces_of("line\n" * MOST_CHARS)).chars <= MOST_CHARS
