"""Replays by script: proof that it is the same process, holes, answers that end early."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Sequence

import pytest

from prefix_index.errors import EventsUnavailable
from prefix_index.kv_events import Batch, Cleared, Event, Message, Removed, Stored, catching_up, decode_batch
from prefix_index.kv_events.catching_up import Rebuilt, catch_up, decoded, rebuild
from prefix_index.kv_events.feed_types import FeedOptions
from prefix_index.kv_events.follower import Follower, pieces
from prefix_index.types import Claim
from tests.prefix_index.kv_events.feeding import HOLDER, PATIENT, Sink, letters, mirror
from tests.prefix_index.kv_events.letters import Letters, tokens_of
from tests.prefix_index.kv_events.publisher import payload_of

SILENCE = None
"""Where an answer breaks off."""


class Answers:
    """What a publisher answers, one list after the other; the last one from then on."""

    def __init__(self, *answers: Sequence[Message | None]) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    async def replay(self, first: int) -> AsyncGenerator[Message, None]:
        self.asked.append(first)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        for message in answer:
            if message is None:
                raise EventsUnavailable("silence")
            if message.sequence >= first:
                yield message


def message(sequence: int, *events: Event) -> Message:
    return Message(b"", sequence, payload_of(events))


def wall() -> float:
    return 2.0e9


def follower(sink: Sink, *, may_write: bool = True) -> Follower:
    return Follower(HOLDER, mirror(), sink, PATIENT, lambda: may_write)


def three() -> list[Message]:
    engine = letters()
    return [message(0, engine.store("a", 0)), message(1, engine.store("ab", 1)), message(2, engine.store("abc", 2))]


async def following(sink: Sink, messages: Sequence[Message]) -> Follower:
    """A follower that has taken these messages."""
    known = follower(sink)
    assert await rebuild(known, Answers(messages).replay, wall) is Rebuilt.WHOLE
    await known.retell()
    return known


async def test_what_was_missed_is_taken_from_the_same_process() -> None:
    sink, messages = Sink(), three()
    known = await following(sink, messages[:1])
    answers = Answers(messages)
    assert await catch_up(known, answers.replay, wall, tell=True)
    assert (answers.asked, sink.run_of("abc"), known.is_complete) == ([0], 3, True)


async def test_another_process_is_no_continuation() -> None:
    known = await following(Sink(), three()[:1])
    assert not await catch_up(known, Answers(three()).replay, wall, tell=True)  # other times, so other bytes
    assert not await catch_up(known, Answers([]).replay, wall, tell=True)
    assert not await catch_up(follower(Sink()), Answers([]).replay, wall, tell=True)


async def test_a_hole_that_is_filled_when_asked_again_is_none() -> None:
    sink, messages = Sink(), three()
    known = await following(sink, messages[:1])
    answers = Answers([messages[0], messages[2]], messages)
    assert await catch_up(known, answers.replay, wall, tell=True)
    assert (answers.asked, sink.run_of("abc"), known.is_complete) == ([0, 0], 3, True)

    fresh = follower(Sink())
    answers = Answers([messages[0], messages[2]], messages)
    assert await rebuild(fresh, answers.replay, wall) is Rebuilt.WHOLE
    assert (answers.asked, fresh.mirror.blocks, fresh.is_complete) == ([0, 1], 3, True)


async def test_a_hole_that_stays_is_lost_and_what_comes_behind_it_is_known() -> None:
    engine, sink = letters(), Sink()
    first = message(0, engine.store("a", 0))
    last = message(2, engine.store("x", 0))
    known = await following(sink, [first])
    assert await catch_up(known, Answers([first, last]).replay, wall, tell=True)
    assert (sink.run_of("a"), sink.run_of("x"), known.is_complete) == (0, 1, False)

    fresh = follower(Sink())
    assert await rebuild(fresh, Answers([first, last]).replay, wall) is Rebuilt.WHOLE
    assert (fresh.mirror.blocks, fresh.is_complete, fresh.tracker.expected) == (1, False, 3)


async def test_ever_new_holes_end_somewhere() -> None:
    engine = letters()
    first = message(0, engine.store("a", 0))
    known = await following(Sink(), [first])
    many = [message(number, engine.store("x", 0)) for number in range(1, 40)]
    # Each answer has one message more than the one before, and then a hole.
    answers = Answers(*([first, *many[:end], many[-1]] for end in range(20)))
    with pytest.raises(EventsUnavailable):
        await catch_up(known, answers.replay, wall, tell=True)

    fresh = follower(Sink())
    answers = Answers(*([first, *many[:end], many[-1]] for end in range(20)))
    assert await rebuild(fresh, answers.replay, wall) is Rebuilt.WHOLE
    assert fresh.tracker.expected == 8


async def test_an_answer_that_breaks_off_stands_as_far_as_it_came() -> None:
    messages = three()
    fresh = follower(Sink())
    assert await rebuild(fresh, Answers([*messages[:2], SILENCE]).replay, wall) is Rebuilt.WHOLE
    assert (fresh.mirror.blocks, fresh.tracker.expected) == (2, 2)
    assert await rebuild(fresh, Answers([SILENCE]).replay, wall) is Rebuilt.NOTHING
    assert (fresh.mirror.blocks, fresh.tracker.expected) == (2, 2)


async def test_a_process_that_has_said_nothing_holds_nothing() -> None:
    known = await following(Sink(), three())
    assert await rebuild(known, Answers([]).replay, wall) is Rebuilt.WHOLE
    assert (known.mirror.blocks, known.tracker.expected, known.is_complete) == (0, 0, True)


async def test_what_does_not_reach_back_replaces_nothing_where_all_is_wanted() -> None:
    messages = three()
    known = await following(Sink(), messages)
    assert await rebuild(known, Answers(messages[1:]).replay, wall, only_whole=True) is Rebuilt.SINCE_LATER
    assert known.mirror.blocks == 3
    assert await rebuild(known, Answers(messages[1:]).replay, wall) is Rebuilt.SINCE_LATER
    assert (known.mirror.blocks, known.mirror.orphans, known.is_complete) == (2, 2, False)


@pytest.mark.parametrize("tell", [True, False])
async def test_a_message_that_cannot_be_read_loses_what_was_before(tell: bool) -> None:
    engine, sink = letters(), Sink()
    first = message(0, engine.store("a", 0))
    rest = [Message(b"", 1, b"\xc1"), message(2, engine.store("x", 0))]
    known = await following(sink, [first])
    assert await catch_up(known, Answers([first, *rest]).replay, wall, tell=tell)
    assert (known.mirror.blocks, known.is_complete, known.counters.malformed) == (1, False, 1)
    assert (sink.run_of("a"), sink.run_of("x")) == ((0, 1) if tell else (1, 0))


async def test_without_the_lease_nothing_is_written() -> None:
    sink = Sink()
    known = follower(sink, may_write=False)
    await known.apply([letters().store("ab", 0), Cleared(), letters().store("x", 0)])
    await known.retell()
    known.rename("another")
    assert (sink.asked, known.mirror.blocks, known.is_complete) == ([], 1, True)


async def test_a_large_cache_is_retold_off_the_loop() -> None:
    sink, prompt = Sink(), "abcdefghij" * 500
    known = follower(sink)
    await known.apply([letters().store(prompt, 0)], tell=False)
    await known.retell()
    assert sink.run_of(prompt) == len(prompt)


def test_long_runs_are_cut_and_short_ones_kept_together() -> None:
    engine = letters()
    long = engine.store("abcdem", 0)
    events: list[Event] = [engine.store("x", 0), Removed((1, 2)), Cleared(), long, engine.store("y", 0)]
    cut = list(pieces(events, 3))
    assert cut[0] == [events[0], events[1]]
    assert cut[1] == [events[2]]
    parts = [cut[2][0], cut[3][0]]
    assert all(isinstance(part, Stored) for part in parts)
    first, second = (part for part in parts if isinstance(part, Stored))
    assert (first.hashes + second.hashes, first.parent, second.parent) == (long.hashes, None, long.hashes[2])
    assert (first.tokens, second.tokens) == (tokens_of("abc", 16), tokens_of("dem", 16))
    assert (first.has_media, second.has_media) == ((False,) * 3, (False, False, True))
    assert cut[4] == [events[4]]
    assert list(pieces([], 3)) == []
    assert first.claim is Claim.CONFIRMED


async def turns_of_others(work: Awaitable[object]) -> int:
    """How often others have their turn meanwhile."""
    turns, is_done = 0, False

    async def others() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(others())
        await work
        is_done = True
    return turns


@pytest.mark.parametrize("kind", ["copies", "nonsense"])
async def test_others_have_their_turns_during_a_replay_of_whatever_it_is(kind: str) -> None:
    first = message(0, letters().store("a", 0))
    flood = [first] * 50 if kind == "copies" else [Message(b"", number, b"zz") for number in range(1, 51)]
    known = Follower(HOLDER, mirror(), Sink(), FeedOptions(turn_s=0.0), lambda: True)
    assert await turns_of_others(rebuild(known, Answers([first, *flood]).replay, wall)) >= 50


async def test_what_is_lost_again_and_again_costs_nothing() -> None:
    known = await following(Sink(), three())
    known.lose()
    nothing = known.mirror._forest
    known.lose()
    assert (known.mirror._forest is nothing, known.mirror.blocks) == (True, 0)


@pytest.mark.parametrize("blocks", [1, 1000])
async def test_a_long_message_is_read_in_a_thread(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def read(payload: bytes) -> Batch:
        threads.append(threading.get_ident())
        return decode_batch(payload)

    monkeypatch.setattr(catching_up, "decode_batch", read)
    batch = await decoded(follower(Sink()), message(0, letters().store("a" * blocks, 0)), wall())
    assert batch is not None
    assert (threads == [threading.get_ident()]) is (blocks == 1)


def test_what_leaves_is_taken_in_pieces_too() -> None:
    removed = Removed(tuple(range(300)), Claim.HOST, 3)
    found = list(pieces([removed], 128))
    assert [[len(event.hashes) for event in piece if isinstance(event, Removed)] for piece in found] == [
        *([128], [128], [44]),
    ]
    assert found[2] == [Removed(tuple(range(256, 300)), Claim.HOST, 3)]


def test_pieces_of_wide_blocks_have_fewer_of_them() -> None:
    wide = letters_of(1024).store("abcde", 0)
    found = list(pieces([wide], 8))
    assert [[len(event.hashes) for event in piece if isinstance(event, Stored)] for piece in found] == [[2], [2], [1]]
    assert len(list(pieces([letters_of(1 << 14).store("ab", 0)], 8))) == 2


def letters_of(block_size: int) -> Letters:
    return Letters(block_size=block_size, ours=16)
