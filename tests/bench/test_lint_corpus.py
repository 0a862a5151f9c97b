"""The scores of lint over labelled examples."""

from bench.lint_corpus import Scores
from bench.lint_examples import Example

FIXED = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of.\n" * 4


def test_what_is_right_false_and_missed_is_counted_by_rule() -> None:
    scores = Scores()
    text = "{{ now }}\n{{ uuid }}\n" + FIXED
    labels = frozenset({("time-before-fixed", "1"), ("date-before-fixed", "1")})
    assert scores.add(Example("mixed", "a.j2", text, labels)) == {
        ("uuid-before-fixed", "2"),
        ("date-before-fixed", "1"),
    }
    assert scores.add(Example("clean", "a.j2", FIXED, frozenset())) == frozenset()
    rows = {str(row["rule"]): row for row in scores.rows("examples")}
    assert rows["all"] == {
        "of": "examples",
        "rule": "all",
        "right": 1,
        "false": 1,
        "missed": 1,
        "precision": 0.5,
        "recall": 0.5,
    }
    assert rows["uuid-before-fixed"]["recall"] is None
    assert scores.clean_row() == {"without_fault": 1, "clean": 1}
    assert [goal.met for goal in scores.goals("examples")] == [False, False, False]
