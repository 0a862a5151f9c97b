"""The paged cache: what is found, held, evicted and moved, against lists of blocks."""

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulated import KvCache
from backends.simulated.kv_cache import Held, names_of
from tests.backends.simulated.naive import NaiveCache


def chain(*names: int) -> bytes:
    return struct.pack(f"<{len(names)}Q", *names)


@dataclass
class Ear:
    """A listener that keeps what a follower of the events would believe."""

    there: set[int] = field(default_factory=set)

    def stored(self, blocks: bytes, start: int, end: int) -> None:
        new = set(names_of(blocks)[start:end])
        assert new.isdisjoint(self.there)
        self.there |= new

    def removed(self, blocks: bytes, start: int, end: int) -> None:
        gone = set(names_of(blocks)[start:end])
        assert gone <= self.there
        self.there -= gone


def fill(cache: KvCache, blocks: bytes) -> None:
    """A request that computes a whole chain and ends."""
    names = names_of(blocks)
    held = cache.find(names, len(names))
    cache.take(names, held, len(names))
    cache.publish(blocks, names, sum(held), len(names))
    cache.release(blocks, names, len(names), 0)


def test_the_tail_of_the_chain_that_was_freed_first_is_evicted_first() -> None:
    cache = KvCache(6)
    fill(cache, chain(1, 2, 3))
    fill(cache, chain(7, 8))
    cache.grow(3)
    assert cache.cached_blocks(chain(1, 2, 3)) == 1
    assert cache.cached_blocks(chain(7, 8)) == 2
    assert (cache.evicted_blocks, cache.named_blocks, cache.free_blocks) == (2, 3, 3)


def test_a_chain_asked_for_again_outlives_one_that_was_not() -> None:
    cache = KvCache(4)
    fill(cache, chain(1, 2))
    fill(cache, chain(7, 8))
    fill(cache, chain(1, 2))
    cache.grow(2)
    assert cache.cached_blocks(chain(1, 2)) == 2
    assert cache.cached_blocks(chain(7, 8)) == 0


def test_a_shared_prefix_is_held_until_the_last_of_its_requests_ends() -> None:
    cache = KvCache(8)
    one, other = chain(1, 2, 3), chain(1, 2, 9)
    fill(cache, one)
    for blocks in (one, other):
        names = names_of(blocks)
        cache.take(names, cache.find(names, 3), 3)
    cache.publish(other, names_of(other), 2, 3)
    assert cache.held_blocks == 4
    cache.release(one, names_of(one), 3, 0)
    assert (cache.held_blocks, cache.kv_use) == (3, 3 / 8)
    cache.release(other, names_of(other), 3, 0)
    assert (cache.held_blocks, cache.cached_blocks(one), cache.cached_blocks(other)) == (0, 3, 3)


def test_who_computes_a_block_that_came_to_be_there_shares_it() -> None:
    cache = KvCache(8)
    blocks = chain(1, 2)
    for _ in range(2):
        cache.take(names_of(blocks), Held(0, 0), 2)
    cache.publish(blocks, names_of(blocks), 0, 2)
    assert cache.held_blocks == 4
    cache.publish(blocks, names_of(blocks), 0, 2)
    assert cache.held_blocks == 2


def test_evicted_blocks_come_back_from_the_host_tier() -> None:
    ear = Ear()
    cache = KvCache(3, host_blocks=2, listener=ear)
    fill(cache, chain(1, 2, 3))
    cache.grow(3)
    assert cache.find(names_of(chain(1, 2, 3)), 3) == Held(0, 2)
    assert ear.there == {1, 2}
    cache.release(b"", names_of(b""), 0, 3)
    cache.take(names_of(chain(1, 2, 3)), Held(0, 2), 3)
    assert (cache.host_blocks, cache.held_blocks) == (0, 3)
    assert cache.cached_blocks(chain(1, 2, 3)) == 2


def test_runs_that_were_taken_up_again_do_not_pile_up() -> None:
    cache = KvCache(8)
    for _ in range(10_000):
        fill(cache, chain(1, 2, 3))
    cache.grow(7)
    assert cache.cached_blocks(chain(1, 2, 3)) == 1


@pytest.mark.parametrize(("capacity", "host"), [(0, 0), (4, -1)])
def test_a_cache_without_blocks_is_refused(capacity: int, host: int) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        KvCache(capacity, host)


deeds = st.one_of(
    st.tuples(st.just("start"), st.integers(1, 4), st.integers(0, 8), st.integers(0, 3)),
    st.tuples(st.just("compute"), st.integers(0, 9), st.integers(0, 8), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 9), st.just(0), st.just(0)),
)


class Both:
    """A cache and its oracle, with the requests that hold blocks of them."""

    def __init__(self, capacity: int, host: int) -> None:
        self.ear = Ear()
        self.cache, self.naive = KvCache(capacity, host, self.ear), NaiveCache(capacity, host)
        self.holding: list[list[object]] = []

    def start(self, family: int, length: int, extra: int) -> None:
        names = [1, 2, 3][: min(3, length)] + [100 * family + i for i in range(3, length)]
        blocks = chain(*names)
        view = names_of(blocks)
        held = self.cache.find(view, length)
        assert held == self.naive.found(names)
        free_found = sum(1 for name in names[: held.device] if not self.naive.pins[name])
        assert self.cache.free_among(view, held.device) == free_found
        if length + extra - held.device > self.naive.free_blocks - free_found:
            return
        self.cache.take(view, held, length + extra)
        for name in names[: sum(held)]:
            self.naive.pin(name)
        self.naive.anonymous += length + extra - sum(held)
        self.naive.trim()
        self.holding.append([blocks, names, sum(held), length + extra])

    def compute(self, which: int, count: int) -> None:
        if not self.holding:
            return
        one = self.holding[which % len(self.holding)]
        blocks, names, named, _ = one
        assert isinstance(blocks, bytes)
        assert isinstance(names, list)
        assert isinstance(named, int)
        end = min(len(names), named + count)
        self.cache.publish(blocks, names_of(blocks), named, end)
        for name in names[named:end]:
            self.naive.pin(name)
            self.naive.anonymous -= 1
        one[2] = end

    def end(self, which: int) -> None:
        if not self.holding:
            return
        blocks, names, named, total = self.holding.pop(which % len(self.holding))
        assert isinstance(blocks, bytes)
        assert isinstance(names, list)
        assert isinstance(named, int)
        assert isinstance(total, int)
        self.cache.release(blocks, names_of(blocks), named, total - named)
        for name in reversed(names[:named]):
            self.naive.unpin(name)
        self.naive.anonymous -= total - named

    def compare(self) -> None:
        assert self.cache.held_blocks == self.naive.held
        assert self.cache.free_blocks == self.naive.free_blocks >= 0
        assert self.cache.named_blocks + self.naive.anonymous <= self.naive.capacity
        assert self.cache.named_blocks == len(self.naive.pins)
        assert self.cache.host_blocks == len(self.naive.host)
        assert self.ear.there == set(self.naive.pins) | set(self.naive.host)
        for family in range(1, 5):
            names = [1, 2, 3, *(100 * family + i for i in range(3, 8))]
            assert self.cache.cached_blocks(chain(*names)) == sum(self.naive.found(names))


@given(capacity=st.sampled_from([6, 12, 30]), host=st.sampled_from([0, 3, 50]), done=st.lists(deeds, max_size=60))
def test_the_cache_does_what_lists_of_blocks_do(
    capacity: int, host: int, done: list[tuple[str, int, int, int]]
) -> None:
    both = Both(capacity, host)
    for deed, first, second, third in done:
        if deed == "start":
            both.start(first, second, third)
        elif deed == "compute":
            both.compute(first, second)
        else:
            both.end(first)
        both.compare()
