"""Every rule on examples of its own, right and wrong, and on real templates of agents."""

import pytest

from bench.lint_corpus import NAMED, scored
from bench.lint_examples import Example, found_in, labelled, places, templates
from bench.lint_planted import PLANTS, planted
from prefix_index.lint import RULES

EXAMPLES = [*labelled("sources"), *labelled("captures")]
NEEDS_A_MODEL = {"template-date"}
NEEDS_A_MINIMUM = {"under-minimum"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.replace(" ", "-"))
def test_what_is_labelled_is_found_and_nothing_else(example: Example) -> None:
    assert places(example, found_in(example)) == example.finds


def test_every_rule_has_an_example() -> None:
    seen = {rule for example in EXAMPLES for rule, _ in example.finds}
    assert set(RULES) - seen == NEEDS_A_MODEL | NEEDS_A_MINIMUM


def test_no_time_or_date_before_fixed_text_of_a_real_template_is_missed_and_nothing_is_a_false_alarm() -> None:
    scores, _ = scored(templates())
    assert [scores.missed[rule] for rule in NAMED] == [0, 0]
    assert scores.false.total() == 0
    assert scores.clean == scores.unlabelled
    assert scores.right.total() > 40


def test_faults_planted_into_real_conversations_are_found_and_the_conversations_alone_are_clean() -> None:
    scores, _ = scored(planted())
    assert scores.false.total() == scores.missed.total() == 0
    assert set(PLANTS) <= set(scores.right)
    assert scores.clean == scores.unlabelled > 100
