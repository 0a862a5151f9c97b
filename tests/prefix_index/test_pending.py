"""A replica reads its own writes, whether Redis has them or not."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.embedded import EmbeddedServer
from prefix_index.index_options import SharedIndexOptions
from prefix_index.pending import MOST_PENDING, with_pending
from prefix_index.radix import RadixIndex
from prefix_index.redis_clients import connect
from prefix_index.shared_index import SharedIndex
from prefix_index.types import Claim, Match
from prefix_index.write_queue import Write
from tests.prefix_index.replicas import PATIENT, match_until, running
from tests.prefix_index.subjects import chain, runs_of

prompts = st.text("ab", min_size=1, max_size=6)
holders = st.sampled_from("AB")
claims = st.sampled_from(Claim)


def observation(holder: str, prompt: str, claim: Claim = Claim.CONFIRMED) -> Write:
    return Write(holder, claim, chain(prompt))


def loss(holder: str, prompt: str, from_block: int, claim: Claim | None = None) -> Write:
    return Write(holder, claim, chain(prompt), from_block)


writes = st.lists(
    st.builds(observation, holders, prompts, claims)
    | st.builds(loss, holders, prompts, st.integers(0, 5), st.none() | claims)
    | st.builds(lambda holder: Write(holder, None, ending=True), holders),
    max_size=8,
)


def applied(index: RadixIndex[str], write: Write) -> None:
    if write.ending:
        index.clear(write.holder, write.claim)
    elif write.from_block is not None:
        index.forget(write.holder, write.chain, write.from_block, write.claim)
    elif write.claim is not None:
        index.observe(write.holder, write.chain, write.claim)


@given(writes, writes, prompts)
def test_what_is_found_is_what_will_be_found_once_the_writes_are_in(
    before: list[Write], pending: list[Write], prompt: str
) -> None:
    index: RadixIndex[str] = RadixIndex()
    for write in before:
        applied(index, write)
    found = with_pending(index.match(chain(prompt)), chain(prompt), pending)
    for write in pending:
        applied(index, write)
    will_be = index.match(chain(prompt))
    assert replace(found, walked_blocks=0, ages_s={}) == replace(will_be, walked_blocks=0)


def test_what_is_on_its_way_was_used_just_now_and_the_rest_is_as_old_as_it_was() -> None:
    found = Match(blocks={"A": 1, "B": 2, "C": 2}, ages_s={"A": 7.0, "B": 8.0, "C": 9.0})
    pending = [observation("A", "abc"), loss("B", "ab", 1), loss("C", "a", 0), observation("D", "ab")]
    laid_over = with_pending(found, chain("abc"), pending)
    assert laid_over.blocks == {"A": 3, "B": 1, "D": 2}
    assert laid_over.ages_s == {"A": 0.0, "B": 8.0, "D": 0.0}


def test_of_a_long_queue_the_latest_count() -> None:
    long_ago = [observation("A", "abc")]
    since = [observation("B", "ab")] * MOST_PENDING
    assert with_pending(Match(), chain("abc"), long_ago + since).blocks == {"B": 2}


@given(writes, writes, prompts)
def test_of_a_long_queue_no_more_is_claimed_than_there_will_be_where_all_losses_are_endings(
    before: list[Write], pending: list[Write], prompt: str
) -> None:
    pending = [write for write in pending if write.ending or write.from_block is None]
    index: RadixIndex[str] = RadixIndex()
    for write in before:
        applied(index, write)
    ending = {write.holder for write in pending if write.ending}
    found = with_pending(index.match(chain(prompt)), chain(prompt), pending[-2:], ending)
    for write in pending:
        applied(index, write)
    will_be = index.match(chain(prompt))
    for claim in Claim:
        claimed, there = runs_of(found, claim), runs_of(will_be, claim)
        assert all(run <= there.get(holder, 0) for holder, run in claimed.items())


async def test_what_was_cleared_is_not_claimed_however_many_writes_wait_since(server: EmbeddedServer) -> None:
    async with connect(server.url) as client:
        index = SharedIndex(client, pool="p", replica="r", options=PATIENT)
        index.observe("A", chain("abc"))
        async with running(index):
            await match_until(index, "abc", lambda found: found.blocks == {"A": 3} and not index.queued_writes)
        index.clear("A")  # nobody carries it
        for number in range(2 * MOST_PENDING):
            index.observe("B", chain(f"x{number}"))
        assert (await index.match(chain("abc"))).blocks == {}
        await index.drain()
        assert (await index.match(chain("abc"))).blocks == {}
        assert index.stand_in_matches == 0


async def test_a_match_finds_what_was_observed_in_the_same_instant(server: EmbeddedServer) -> None:
    async with connect(server.url) as client, asyncio.TaskGroup() as group:
        index = SharedIndex(client, pool="own writes", replica="r", options=SharedIndexOptions(deadline_s=10.0))
        running = group.create_task(index.run())
        async with asyncio.timeout(10):
            for turn in range(1, 60):
                index.observe("A", chain("t" * turn))
                assert (await index.match(chain("t" * turn))).blocks == {"A": turn}
            index.forget("A", chain("t" * 59), 20)
            assert (await index.match(chain("t" * 59))).blocks == {"A": 20}
            index.clear("A")
            assert (await index.match(chain("t" * 59))).blocks == {}
        assert index.stand_in_matches == 0
        running.cancel()
