"""The queue of writes: in order, bounded, one where one says all, and endings are never lost."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.radix import RadixIndex
from prefix_index.types import HASH_BYTES, Chain, Claim
from prefix_index.write_queue import Write, WriteQueue
from tests.prefix_index.subjects import chain

LOTS = 10**6


def observation(holder: str, prompt: str, claim: Claim = Claim.CONFIRMED) -> Write:
    return Write(holder, claim, chain(prompt))


def loss(holder: str, prompt: str, from_block: int, claim: Claim | None = Claim.CONFIRMED) -> Write:
    return Write(holder, claim, chain(prompt), from_block)


def ending(holder: str) -> Write:
    return Write(holder, None, ending=True)


def of_bytes(size: int) -> Write:
    return Write("a", None, Chain(bytes(size), 16, 0), 0)


def test_writes_leave_in_the_order_they_came() -> None:
    queue = WriteQueue(max_writes=10, max_bytes=LOTS)
    writes = [observation("a", letter) for letter in "vwxyz"]
    assert all(queue.put(one) for one in writes)
    taken = queue.take(3)
    assert taken == writes[:3]
    queue.give_back(taken)
    assert queue.take(10) == writes
    assert len(queue) == queue.dropped == 0


def test_a_full_queue_drops_what_comes_and_counts_it() -> None:
    queue = WriteQueue(max_writes=2, max_bytes=LOTS)
    assert queue.put(observation("a", "x"))
    assert queue.put(observation("a", "y"))
    assert not queue.put(observation("a", "z"))
    assert queue.dropped == 1
    assert queue.full


def test_bytes_are_bounded_too() -> None:
    queue = WriteQueue(max_writes=100, max_bytes=100)
    assert queue.put(of_bytes(100))
    assert not queue.put(of_bytes(1))
    queue.take(1)
    assert queue.put(of_bytes(1))


def test_an_ending_always_finds_room_and_makes_earlier_writes_of_its_holder_moot() -> None:
    queue = WriteQueue(max_writes=4, max_bytes=LOTS)
    for number, holder in enumerate("abab"):
        queue.put(observation(holder, str(number)))
    assert queue.put(ending("a"))
    assert [(one.holder, one.ending) for one in queue.take(10)] == [("b", False), ("b", False), ("a", True)]
    assert queue.dropped == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 2))))
def test_it_is_known_whose_endings_wait_whatever_is_taken_and_given_back(
    calls: list[tuple[str, bool, int]],
) -> None:
    queue = WriteQueue(max_writes=3, max_bytes=LOTS)
    for number, (holder, is_ending, take) in enumerate(calls):
        queue.put(ending(holder) if is_ending else observation(holder, str(number)))
        taken = queue.take(take)
        queue.give_back(taken[1:])
        assert queue.ending == {one.holder for one in queue.latest(100) if one.ending}


def test_an_observation_takes_the_place_of_the_one_that_it_extends() -> None:
    queue = WriteQueue(max_writes=2, max_bytes=LOTS)
    first = observation("a", "x")
    queue.put(first)
    queue.put(observation("b", "z"))
    assert queue.full
    assert queue.put(observation("a", "xy"))
    assert queue.put(observation("a", "xyz"))
    assert not queue.put(observation("a", "xq"))
    assert first.moot
    assert [one.chain for one in queue.take(10)] == [chain("xyz"), chain("z")]


def test_an_observation_of_less_than_the_last_one_is_none() -> None:
    queue = WriteQueue(max_writes=9, max_bytes=LOTS)
    less = observation("a", "xy")
    assert queue.put(observation("a", "xyz"))
    assert queue.put(less)
    assert less.moot
    assert [one.chain for one in queue.take(10)] == [chain("xyz")]


def test_claims_and_holders_do_not_come_between_each_other() -> None:
    queue = WriteQueue(max_writes=9, max_bytes=LOTS)
    for prompt in ("x", "xy", "xyz"):
        queue.put(observation("a", prompt, Claim.SPECULATIVE))
        queue.put(observation("a", prompt))
        queue.put(observation("b", prompt))
    assert len(queue) == 3


def test_a_loss_takes_the_place_of_an_observation_of_which_nothing_is_left_to_be_said() -> None:
    queue = WriteQueue(max_writes=9, max_bytes=LOTS)
    for holder, claim, lost, from_block in (
        ("a", Claim.SPECULATIVE, "xy", 1),
        ("b", Claim.SPECULATIVE, "xqz", 1),
        ("c", Claim.CONFIRMED, "xq", 0),
        ("d", Claim.CONFIRMED, "xy", 1),
    ):
        queue.put(observation(holder, "xyz", claim))
        queue.put(loss(holder, lost, from_block, claim))
    left = [(one.holder, one.from_block) for one in queue.take(10)]
    assert left == [("a", 1), ("b", None), ("b", 1), ("c", 0), ("d", None), ("d", 1)]


def test_what_is_about_all_claims_or_made_under_other_circumstances_stays_apart() -> None:
    queue = WriteQueue(max_writes=9, max_bytes=LOTS)
    queue.put(observation("a", "x"))
    queue.put(loss("a", "q", 0, None))
    queue.put(observation("a", "xy"))
    queue.put(ending("a"))
    queue.put(observation("a", "xyz"))
    queue.put(Write("a", Claim.CONFIRMED, chain("xyzz"), capacity=7))
    queue.put(Write("a", Claim.CONFIRMED, chain("xyzzz"), capacity=7, generation=3))
    assert len(queue) == 7


def test_bytes_are_right_whatever_is_merged_taken_and_given_back() -> None:
    queue = WriteQueue(max_writes=10, max_bytes=4 * HASH_BYTES)
    queue.put(observation("a", "x"))
    taken = queue.take(1)
    queue.put(observation("a", "xy"))
    queue.give_back(taken)
    was_full = [queue.full]
    queue.put(observation("a", "xyz"))
    was_full.append(queue.full)
    assert [one.chain for one in queue.take(10)] == [chain("x"), chain("xyz")]
    assert [*was_full, queue.full] == [False, True, False]


prompts = st.text("xy", min_size=1, max_size=4)
claims = st.sampled_from([Claim.SPECULATIVE, Claim.CONFIRMED])
changes = (
    st.builds(observation, st.sampled_from("ab"), prompts, claims)
    | st.builds(loss, st.sampled_from("ab"), prompts, st.integers(0, 3), st.none() | claims)
    | st.builds(ending, st.sampled_from("ab"))
)


def applied(index: RadixIndex[str], write: Write) -> None:
    if write.ending:
        index.clear(write.holder)
    elif write.from_block is not None:
        index.forget(write.holder, write.chain, write.from_block, write.claim)
    elif write.claim is not None:
        index.observe(write.holder, write.chain, write.claim)


@given(st.lists(st.tuples(changes, st.integers(0, 2)), max_size=12), prompts)
def test_what_is_left_after_all_writes_is_what_was_said_but_for_speculation_before_a_loss(
    puts: list[tuple[Write, int]], prompt: str
) -> None:
    queue = WriteQueue(max_writes=100, max_bytes=LOTS)
    said, sent = RadixIndex[str](), RadixIndex[str]()
    for write, take in puts:
        applied(said, write)
        assert queue.put(write)
        for one in queue.take(take):
            applied(sent, one)
    for one in queue.take(100):
        assert not one.moot
        applied(sent, one)
    there, wanted = sent.match(chain(prompt)), said.match(chain(prompt))
    assert there.blocks == wanted.blocks
    assert all(run <= wanted.speculative.get(holder, 0) for holder, run in there.speculative.items())
    for holder, run in wanted.speculative.items():
        most_left = max((write.from_block or 0 for write, _ in puts if write.holder == holder), default=0)
        assert there.speculative.get(holder, 0) == run or run <= most_left


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())), st.integers(1, 5))
def test_however_long_redis_is_away_the_queue_stays_bounded_and_keeps_the_last_endings(
    puts: list[tuple[str, bool]], limit: int
) -> None:
    queue = WriteQueue(max_writes=limit, max_bytes=LOTS)
    last_ending: dict[str, int] = {}
    accepted_after: dict[str, int] = {}
    for number, (holder, is_ending) in enumerate(puts):
        write = Write(holder, None, Chain(bytes(8), 16, number), None if is_ending else 0, is_ending)
        taken_in = queue.put(write)
        assert taken_in or not is_ending
        if is_ending:
            last_ending[holder] = number
        elif taken_in:
            accepted_after[holder] = number
        assert len(queue) <= limit + 3
    left = [(one.holder, one.chain.prompt_tokens) for one in queue.take(10**6)]
    assert {(holder, number) for holder, number in last_ending.items()} <= set(left)
    assert sorted(left, key=lambda one: one[1]) == left
    for holder, number in accepted_after.items():
        if number > last_ending.get(holder, -1):
            assert (holder, number) in left
