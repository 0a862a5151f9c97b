"""Quality in figures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tuning.judging import agreement, bits_per_byte, change, common, is_exact, is_said, perplexity, repeated
from gateway.tuning.types import Answer, Reading

TOKENS = st.lists(st.integers(0, 2), max_size=6)
LOGPROBS = st.lists(st.floats(-20, 0), min_size=2, max_size=30)


def answers(*tokens: list[int]) -> list[Answer]:
    return [Answer([*one]) for one in tokens]


def test_whoever_guesses_among_n_has_a_perplexity_of_n() -> None:
    assert perplexity(Reading([math.log(1 / 50)] * 9, 100, "echo")) == pytest.approx(50)


def test_bits_per_byte_of_two_to_the_minus_eight_for_each_byte_is_eight() -> None:
    assert bits_per_byte(Reading([math.log(2**-8)] * 10, 10, "echo")) == pytest.approx(8)


@given(LOGPROBS)
def test_a_text_read_alike_has_not_changed_and_without_error(logprobs: list[float]) -> None:
    found = change(Reading(logprobs, 1, "echo"), Reading(logprobs, 1, "echo"))
    assert found is not None
    assert (found.ratio, found.error) == (1.0, 0.0)


@given(LOGPROBS, st.floats(-1, 1))
def test_a_change_is_the_ratio_of_both_perplexities(logprobs: list[float], more: float) -> None:
    base, other = Reading(logprobs, 1, "echo"), Reading([one - more for one in logprobs], 1, "echo")
    found = change(base, other)
    assert found is not None
    of_other, of_base = perplexity(other), perplexity(base)
    assert of_other is not None
    assert of_base is not None
    assert found.ratio == pytest.approx(of_other / of_base)
    assert found.error == pytest.approx(0, abs=1e-6)  # each token the same: the pairs leave nothing to chance


def test_texts_of_other_tokens_are_not_compared() -> None:
    assert change(Reading([-1.0], 1, "echo"), Reading([-1.0, -1.0], 1, "echo")) is None


def test_of_one_token_the_error_is_not_known() -> None:
    found = change(Reading([-1.0], 1, "echo"), Reading([-2.0], 1, "echo"))
    assert found is not None
    assert found.error == math.inf


@given(TOKENS, TOKENS)
def test_what_two_answers_have_in_common_ends_at_the_first_difference(one: list[int], other: list[int]) -> None:
    head = common(one, other)
    assert one[:head] == other[:head]
    assert one[head : head + 1] != other[head : head + 1] or head == len(one) == len(other)


def test_agreement_counts_tokens_before_the_first_difference_and_where_that_is() -> None:
    found = agreement(answers([1, 2, 3, 4], [5, 6], [7]), answers([1, 2, 9, 4], [5, 6], [7, 8]))
    assert found is not None
    assert (found.equal, found.same, found.of, found.diverges_at) == (5 / 8, 1, 3, 1)


@given(st.lists(TOKENS, min_size=1, max_size=5))
def test_answers_agree_with_themselves(tokens: list[list[int]]) -> None:
    found = agreement(answers(*tokens), answers(*tokens))
    assert found is not None
    assert (found.equal, found.same, found.diverges_at) == (1.0, len(tokens), None)


def test_answers_to_other_questions_are_not_compared() -> None:
    assert agreement(answers([1]), answers([1], [2])) is None
    assert agreement([], []) is None


def test_only_what_was_asked_twice_tells_chance_apart() -> None:
    found = repeated([Answer([1, 2], [1, 3]), Answer([1])])
    assert found is not None
    assert (found.equal, found.of) == (0.5, 1)
    assert repeated(answers([1])) is None


@pytest.mark.parametrize(
    ("answer", "exact", "said"),
    [
        ("Paris", True, True),
        (" paris.\n", True, True),
        ("**Paris**", True, True),
        ("The capital is Paris, in France.", False, True),
        ("Parisian", False, False),
        ("Rome\nParis", False, False),
        ("", False, False),
    ],
)
def test_an_answer_is_right_as_a_whole_or_says_what_is_right(answer: str, exact: bool, said: bool) -> None:
    assert (is_exact(answer, ["Paris"]), is_said(answer, ["Paris"])) == (exact, said)


def test_a_number_is_not_found_within_another() -> None:
    assert not is_said("It is 427 or 1.42", ["42"])
    assert is_said("It is 42.", ["42"])
