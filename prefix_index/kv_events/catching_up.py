"""Getting back in step by a replay.

    catch_up   "from my last message on": is it the same process? what did I miss?
    rebuild    "from 0 on": what does the cache hold?

Numbers alone do not say whether a process was replaced while nobody listened. The last message taken does: a replay
from there on begins with the same bytes, or it is another process (or too late, which comes to the same).

An engine drops answers that its socket does not take in time. So a hole in a replay is asked for again, as long as
that brings something.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Final

from prefix_index.errors import EventsUnavailable, MalformedBatch
from prefix_index.kv_events.follower import Follower
from prefix_index.kv_events.payloads import decode_batch
from prefix_index.kv_events.sequence import Arrival
from prefix_index.kv_events.types import Batch, Message

Replay = Callable[[int], AsyncGenerator[Message, None]]
"""Asks for the messages from a number on."""

_ROUNDS: Final = 8

LOOP_SAFE_BYTES: Final = 32 * 1024
"""Of a payload, which take about a millisecond to read."""


class Rebuilt(StrEnum):
    """What a replay from 0 on has brought."""

    WHOLE = "whole"
    """Everything since the process began."""
    SINCE_LATER = "since_later"
    """What the publisher still keeps, which does not reach back to its beginning."""
    NOTHING = "nothing"
    """No answer."""


async def decoded(follower: Follower, message: Message, now_s: float) -> Batch | None:
    """The batch in a message, None where it is none. Counts. A long one is read in a thread."""
    follower.note(message)
    try:
        if len(message.payload) > LOOP_SAFE_BYTES:
            batch = await asyncio.to_thread(decode_batch, message.payload)
            follower.start_turn()
        else:
            batch = decode_batch(message.payload)
    except MalformedBatch:
        follower.counters.malformed += 1
        return None
    follower.counters.batches += 1
    follower.counters.skipped += batch.skipped
    follower.counters.lag_s = now_s - batch.at_s
    return batch


async def catch_up(follower: Follower, replay: Replay, wall: Callable[[], float], *, tell: bool) -> bool:
    """Take what was missed since the last message. False where that is not to be had from the same process.

    Raises EventsUnavailable where nobody answers.
    """
    hole: int | None = None
    for _ in range(_ROUNDS):
        if not follower.has_last:
            return False
        follower.counters.replays += 1
        async with aclosing(replay(follower.tracker.expected - 1)) as messages:
            first = await _first(messages)
            if first is None or not follower.is_last(first):
                return False
            hole = await _take_all(follower, messages, wall, tell=tell, hole=hole)
        if hole is None:
            return True
    raise EventsUnavailable("replays have holes")


async def rebuild(
    follower: Follower, replay: Replay, wall: Callable[[], float], *, only_whole: bool = False
) -> Rebuilt:
    """Begin anew from what the publisher still keeps, without telling the index.

    Nothing is done where nobody answers; with `only_whole` nor where the answer does not reach back to the beginning.
    """
    reached: Rebuilt | None = None
    hole: int | None = None
    try:
        for _ in range(_ROUNDS):
            follower.counters.replays += 1
            async with aclosing(replay(0 if reached is None else follower.tracker.expected)) as messages:
                if reached is None:
                    first = await _first(messages)
                    if first is None:
                        follower.begin(0)  # the process has published nothing yet
                        return Rebuilt.WHOLE
                    reached = Rebuilt.SINCE_LATER if first.sequence else Rebuilt.WHOLE
                    if only_whole and reached is not Rebuilt.WHOLE:
                        return reached
                    follower.begin(first.sequence)
                    await _take(follower, first, wall, tell=False)
                hole = await _take_all(follower, messages, wall, tell=False, hole=hole)
            if hole is None:
                break
    except EventsUnavailable:
        # What came before the silence stands; the next live message shows what is missing.
        pass
    return reached or Rebuilt.NOTHING


async def _first(messages: AsyncGenerator[Message, None]) -> Message | None:
    async for message in messages:
        return message
    return None


async def _take_all(
    follower: Follower,
    messages: AsyncGenerator[Message, None],
    wall: Callable[[], float],
    *,
    tell: bool,
    hole: int | None,
) -> int | None:
    """Take the messages of a replay; the number that is missing, or None.

    What was missing in the replay before this one already (`hole`) was never kept: it is passed over as lost.
    """
    async for message in messages:
        if not await _take(follower, message, wall, tell=tell):
            if follower.tracker.expected != hole:
                return follower.tracker.expected
            follower.lose(tell=tell)
            follower.tracker.jump(message.sequence - 1)
            await _take(follower, message, wall, tell=tell)
    return None


async def _take(follower: Follower, message: Message, wall: Callable[[], float], *, tell: bool) -> bool:
    """Take a message of a replay; False where messages before it are missing."""
    arrival = follower.tracker.feed(message.sequence, replayed=True)
    if arrival is Arrival.IN_ORDER:
        batch = await decoded(follower, message, wall())
        if batch is None:
            follower.lose(tell=tell)
        else:
            await follower.apply(batch.events, tell=tell)
    await follower.breathe()  # copies and nonsense take time, too
    return arrival is not Arrival.GAP
