"""The queue of writes: in order, bounded, and endings are never lost."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.redis_wire import Call
from prefix_index.write_queue import Write, WriteQueue


def write(holder: str, number: int = 0, *, ending: bool = False, size: int = 8) -> Write:
    return Write(holder, Call("observe", (number, holder, bytes(size))), ending)


def test_writes_leave_in_the_order_they_came() -> None:
    queue = WriteQueue(max_writes=10, max_bytes=1000)
    writes = [write("a", number) for number in range(5)]
    assert all(queue.put(one) for one in writes)
    taken = queue.take(3)
    assert taken == writes[:3]
    queue.give_back(taken)
    assert queue.take(10) == writes
    assert len(queue) == queue.dropped == 0


def test_a_full_queue_drops_what_comes_and_counts_it() -> None:
    queue = WriteQueue(max_writes=2, max_bytes=1000)
    assert queue.put(write("a"))
    assert queue.put(write("a"))
    assert not queue.put(write("a"))
    assert queue.dropped == 1
    assert queue.full


def test_bytes_are_bounded_too() -> None:
    queue = WriteQueue(max_writes=100, max_bytes=100)
    assert queue.put(write("a", size=100))
    assert not queue.put(write("a", size=1))
    queue.take(1)
    assert queue.put(write("a", size=1))


def test_an_ending_always_finds_room_and_makes_earlier_writes_of_its_holder_moot() -> None:
    queue = WriteQueue(max_writes=4, max_bytes=1000)
    for holder in "abab":
        queue.put(write(holder))
    assert queue.put(write("a", ending=True))
    assert [(one.holder, one.ending) for one in queue.take(10)] == [("b", False), ("b", False), ("a", True)]
    assert queue.dropped == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 2))))
def test_it_is_known_whose_endings_wait_whatever_is_taken_and_given_back(
    calls: list[tuple[str, bool, int]],
) -> None:
    queue = WriteQueue(max_writes=3, max_bytes=1000)
    for number, (holder, ending, take) in enumerate(calls):
        queue.put(write(holder, number, ending=ending))
        taken = queue.take(take)
        queue.give_back(taken[1:])
        assert queue.ending == {one.holder for one in queue.latest(100) if one.ending}


def observation(holder: str, hashes: bytes, kind: str = "confirmed") -> Write:
    return Write(holder, Call("observe", (holder, hashes)), hashes=hashes, kind=(kind,))


def test_an_observation_takes_the_place_of_the_one_that_it_extends() -> None:
    queue = WriteQueue(max_writes=2, max_bytes=1000)
    queue.put(observation("a", b"1"))
    queue.put(observation("b", b"9"))
    assert queue.full
    assert queue.put(observation("a", b"12"))
    assert queue.put(observation("a", b"123"))
    assert not queue.put(observation("a", b"14"))
    assert [one.hashes for one in queue.take(10)] == [b"123", b"9"]


def test_only_observations_of_one_kind_with_nothing_between_become_one() -> None:
    queue = WriteQueue(max_writes=10, max_bytes=1000)
    queue.put(observation("a", b"1"))
    queue.put(observation("a", b"12", "speculative"))
    queue.put(write("a"))
    queue.put(observation("a", b"123", "speculative"))
    queue.put(write("a"))
    queue.put(write("a"))
    assert len(queue) == 6


def test_bytes_are_right_whatever_is_merged_taken_and_given_back() -> None:
    queue = WriteQueue(max_writes=10, max_bytes=4)
    queue.put(observation("a", b"1"))
    taken = queue.take(1)
    queue.put(observation("a", b"12"))
    queue.give_back(taken)
    was_full = [queue.full]
    queue.put(observation("a", b"123"))
    was_full.append(queue.full)
    assert [one.hashes for one in queue.take(10)] == [b"1", b"123"]
    assert [*was_full, queue.full] == [False, True, False]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())), st.integers(1, 5))
def test_however_long_redis_is_away_the_queue_stays_bounded_and_keeps_the_last_endings(
    puts: list[tuple[str, bool]], limit: int
) -> None:
    queue = WriteQueue(max_writes=limit, max_bytes=10**6)
    last_ending: dict[str, int] = {}
    accepted_after: dict[str, int] = {}
    for number, (holder, ending) in enumerate(puts):
        taken_in = queue.put(write(holder, number, ending=ending))
        assert taken_in or not ending
        if ending:
            last_ending[holder] = number
        elif taken_in:
            accepted_after[holder] = number
        assert len(queue) <= limit + 3
    left = [(one.holder, one.call.args[0]) for one in queue.take(10**6)]
    assert {(holder, number) for holder, number in last_ending.items()} <= set(left)
    assert sorted(left, key=lambda one: int(one[1])) == left
    for holder, number in accepted_after.items():
        if number > last_ending.get(holder, -1):
            assert (holder, number) in left
