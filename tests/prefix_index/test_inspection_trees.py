"""Prefixes of several shards told together are trees of those that are told."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.inspection import with_parents_among
from prefix_index.redis_census import HotPrefix

PLAIN = HotPrefix("", 1, 1, 1, 0, 1, (), 0.0)


@st.composite
def forests(draw: st.DrawFn) -> list[HotPrefix]:
    """Each goes on from an earlier one, or from none."""
    found: list[HotPrefix] = []
    for place in range(draw(st.integers(1, 12))):
        above = draw(st.none() | st.integers(0, place - 1)) if place else None
        found.append(replace(PLAIN, hash=str(place), parent=None if above is None else str(above)))
    return found


@given(forests(), st.sets(st.integers(0, 11)))
def test_each_goes_on_from_the_closest_that_is_told(every: list[HotPrefix], places: set[int]) -> None:
    told = [one for one in every if int(one.hash) in places]
    names, parents = {one.hash for one in told}, {one.hash: one.parent for one in every}
    found = with_parents_among(told, every)
    assert [one.hash for one in found] == [one.hash for one in told]
    for one in found:
        above: list[str] = []
        at = parents[one.hash]
        while at is not None:
            above.append(at)
            at = parents[at]
        assert one.parent == next((name for name in above if name in names), None)
