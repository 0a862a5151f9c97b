"""The front: what no other beats."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.tuning.pareto import Axis, front

AXES = (Axis("speed", more_is_better=True), Axis("perplexity", more_is_better=False))
VALUES = st.one_of(st.none(), st.integers(-3, 3).map(float))
POINTS = st.lists(st.tuples(VALUES, VALUES), max_size=12)


def is_beaten(one: tuple[float, float], by: tuple[float, float]) -> bool:
    """As a person would say it."""
    return by[0] >= one[0] and by[1] <= one[1] and (by[0] > one[0] or by[1] < one[1])


@given(POINTS)
def test_a_point_is_on_the_front_where_no_known_one_beats_it(points: list[tuple[float | None, float | None]]) -> None:
    known = [(a, b) for a, b in points if a is not None and b is not None]
    for (a, b), is_on in zip(points, front(points, AXES), strict=True):
        if a is None or b is None:
            assert is_on is None
        else:
            assert is_on is not any(is_beaten((a, b), by) for by in known)


@given(POINTS)
def test_whoever_is_not_on_the_front_is_beaten_by_one_that_is(
    points: list[tuple[float | None, float | None]],
) -> None:
    found = front(points, AXES)
    on = [(a, b) for (a, b), is_on in zip(points, found, strict=True) if is_on and a is not None and b is not None]
    for (a, b), is_on in zip(points, found, strict=True):
        if is_on is False and a is not None and b is not None:
            assert any(is_beaten((a, b), by) for by in on)


@given(POINTS, st.randoms())
def test_the_order_of_points_is_no_matter(points: list[tuple[float | None, float | None]], dice: object) -> None:
    mixed = list(range(len(points)))
    dice.shuffle(mixed)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    found = front(points, AXES)
    assert front([points[at] for at in mixed], AXES) == [found[at] for at in mixed]


@given(POINTS)
def test_only_the_order_of_values_counts(points: list[tuple[float | None, float | None]]) -> None:
    bent = [tuple(None if value is None else value**3 + 7 for value in point) for point in points]
    assert front(bent, AXES) == front(points, AXES)


@given(POINTS)
def test_there_is_a_front_wherever_something_is_known(points: list[tuple[float | None, float | None]]) -> None:
    found = front(points, AXES)
    assert any(found) is any(None not in point for point in points)


def test_of_two_alike_both_stay() -> None:
    assert front([(1.0, 2.0), (1.0, 2.0), (0.0, 2.0)], AXES) == [True, True, False]


def test_what_is_no_number_is_not_known() -> None:
    assert front([(float("nan"), 1.0), (0.0, 1.0)], AXES) == [None, True]
