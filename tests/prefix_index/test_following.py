"""What other replicas ended is read off the registry, and what this one ended is not taken for theirs."""

from prefix_index.following import Follower
from prefix_index.redis_wire import Registry


def registry(born: bytes = b"1", **generations: int) -> Registry:
    return Registry(version=str(generations).encode(), born=born, generations=generations)


def test_a_generation_that_changed_or_went_was_ended_elsewhere() -> None:
    follower = Follower()
    assert follower.follow(registry(a=1, b=2, c=3)) == []
    assert follower.follow(registry(a=1, b=7)) == ["b", "c"]
    assert [follower.generation(holder) for holder in "abc"] == [1, 7, None]


def test_the_same_registry_says_nothing_new() -> None:
    follower = Follower()
    same = registry(a=1)
    follower.follow(same)
    assert follower.follow(same) == []


def test_what_was_ended_here_is_not_ended_again_when_it_comes_back() -> None:
    follower = Follower()
    follower.follow(registry(a=1, b=2))
    assert follower.ending("a") == 1
    assert follower.generation("a") is None, "writes after the ending belong to no generation that is known"
    assert follower.follow(registry(a=1, b=3)) == ["b"], "the ending has not arrived yet"
    assert follower.generation("a") is None
    assert follower.follow(registry(a=9, b=3)) == []
    assert follower.generation("a") == 9
    assert follower.follow(registry(a=10, b=3)) == ["a"]


def test_an_ending_of_somebody_unknown_waits_for_nothing() -> None:
    follower = Follower()
    assert follower.ending("a") is None
    follower.follow(registry(a=1))
    assert follower.generation("a") == 1


def test_an_index_that_redis_lost_ended_nobody() -> None:
    follower = Follower()
    follower.follow(registry(a=1, b=2))
    follower.ending("a")
    assert follower.follow(registry(born=b"2", b=5)) == []
    assert (follower.generation("a"), follower.generation("b")) == (None, 5)
