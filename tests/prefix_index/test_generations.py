"""What other replicas ended is read off the registry, and what this one ended is not taken for theirs."""

from prefix_index.generations import Generations
from prefix_index.redis_wire import Registry


def registry(born: bytes = b"1", **generations: int) -> Registry:
    return Registry(version=str(generations).encode(), born=born, generations=generations)


def test_a_generation_that_changed_or_went_was_ended_elsewhere() -> None:
    generations = Generations()
    assert generations.learn(registry(a=1, b=2, c=3)) == []
    assert generations.learn(registry(a=1, b=7)) == ["b", "c"]
    assert [generations.of(holder) for holder in "abc"] == [1, 7, None]


def test_the_same_registry_says_nothing_new() -> None:
    generations = Generations()
    same = registry(a=1)
    generations.learn(same)
    assert generations.learn(same) == []


def test_what_was_ended_here_is_not_ended_again_when_it_comes_back() -> None:
    generations = Generations()
    generations.learn(registry(a=1, b=2))
    assert generations.end("a") == 1
    assert generations.of("a") is None, "writes after the ending belong to no generation that is known"
    assert generations.learn(registry(a=1, b=3)) == ["b"], "the ending has not arrived yet"
    assert generations.of("a") is None
    assert generations.learn(registry(a=9, b=3)) == []
    assert generations.of("a") == 9
    assert generations.learn(registry(a=10, b=3)) == ["a"]


def test_an_ending_of_somebody_unknown_waits_for_nothing() -> None:
    generations = Generations()
    assert generations.end("a") is None
    generations.learn(registry(a=1))
    assert generations.of("a") == 1


def test_an_index_that_redis_lost_ended_nobody() -> None:
    generations = Generations()
    generations.learn(registry(a=1, b=2))
    generations.end("a")
    assert generations.learn(registry(born=b"2", b=5)) == []
    assert (generations.of("a"), generations.of("b")) == (None, 5)
