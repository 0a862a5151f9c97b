"""What a match says of an endpoint, however many caches it has."""

import pytest

from gateway.known import NOTHING, Known, cache_name, known_at, reaches
from prefix_index import Match


def test_an_endpoint_that_nothing_is_known_of_has_nothing() -> None:
    assert known_at("e@1", 4, Match(blocks={"f@1": 3, "e@2": 3, "e@1/7": 3})) is NOTHING


def test_the_runs_of_an_endpoint_are_those_of_its_holder() -> None:
    match = Match(
        blocks={"e@1": 2}, speculative={"e@1": 5}, host={"e@1": 3}, disk={"e@1": 4}, ages_s={"e@1": 7.5, "f@1": 1.0}
    )
    assert known_at("e@1", 1, match) == Known("e@1", 2, 5, 3, 4, 7.5)
    assert known_at("e@1", 1, match).reach_blocks == 5


def test_of_several_ranks_the_one_that_reaches_furthest_counts() -> None:
    match = Match(blocks={"e@1": 2, "e@1/1": 3, "e@1/2": 9}, host={"e@1": 6})
    assert known_at("e@1", 1, match) == Known("e@1", confirmed_blocks=2, host_blocks=6)
    assert known_at("e@1", 2, match) == Known("e@1", confirmed_blocks=2, host_blocks=6)
    assert known_at("e@1", 3, match) == Known("e@1/2", confirmed_blocks=9)


def test_rank_zero_has_the_name_itself() -> None:
    assert [cache_name("e@1", rank) for rank in range(3)] == ["e@1", "e@1/1", "e@1/2"]


@pytest.mark.parametrize(
    "match", [Match(), Match(blocks={"e@1": 2}), Match(blocks={"e@1": 2, "e@1/1": 4}), Match(speculative={"e@1": 3})]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_reach_is_that_of_what_is_known(match: Match[str], ranks: int) -> None:
    reach = reaches(match)
    assert (
        max(reach.get(cache_name("e@1", rank), 0) for rank in range(ranks))
        == known_at("e@1", ranks, match).reach_blocks
    )
