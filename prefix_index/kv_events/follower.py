"""One cache as it is followed: its mirror, the numbers of its messages, and what the index was told.

    events ──> pieces ──> mirror.apply ──> changes ──> sink        a turn is 2 ms, then others have theirs

*Complete* means that the mirror has seen all that the cache was told to hold: from message 0 on, or from a moment at
which the cache was emptied. Otherwise blocks may lie there that nobody here knows of, and that leave unseen.

Events that are ready together are applied together: the mirror then tells their sum, one observation for a sequence
that grew by three blocks, and nothing of a block that came and went.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from xxhash import xxh3_64_intdigest

from prefix_index.kv_events.feed_types import EventSink, FeedCounters, FeedOptions
from prefix_index.kv_events.mirror import Mirror
from prefix_index.kv_events.sequence import Arrival, SequenceTracker
from prefix_index.kv_events.types import Change, Cleared, Event, Forget, Message, Observe, Removed, Stored
from prefix_index.types import TOKEN_BYTES, TokenIds

PIECE_BLOCKS: Final = 128
"""Blocks that the mirror takes at one go."""

_TOKENS_OF_A_BLOCK: Final = 256
"""Wider blocks count as several."""

_HOLD_BACK_S: Final = 0.01
_BLOCKS_TO_RETELL_AT_ONCE: Final = 2_048


class Follower:
    """Plain state and what changes it; who calls makes sure that it is one task. `may_write` is asked before writes."""

    def __init__(
        self,
        holder: str,
        mirror: Mirror,
        sink: EventSink,
        options: FeedOptions,
        may_write: Callable[[], bool],
    ) -> None:
        self.holder = holder
        self.mirror = mirror
        self.tracker = SequenceTracker()
        self.counters = FeedCounters()
        self.is_complete = False
        self.begins_anywhere = True
        self.is_told = False
        self._sink = sink
        self._options = options
        self._may_write = may_write
        self._has_told = False
        self._losses = sink.losses_of(holder)
        self._digest: int | None = None
        self._turn_ends_s = 0.0

    def note(self, message: Message) -> None:
        """This message was the last one taken."""
        self._digest = xxh3_64_intdigest(message.payload)

    def is_last(self, message: Message) -> bool:
        """Whether this is, byte for byte, the last message that was taken: another process would say another time."""
        return message.sequence == self.tracker.expected - 1 and xxh3_64_intdigest(message.payload) == self._digest

    @property
    def has_last(self) -> bool:
        """Whether a message was taken since the beginning."""
        return self.tracker.expected > 0 and self._digest is not None

    def begin(self, first: int | None) -> None:
        """Know nothing and expect message `first`; None: whatever comes next is the first. The index is not told."""
        self.mirror.clear()
        self.tracker.restart()
        if first:
            self.tracker.jump(first - 1)
        self.begins_anywhere = first is None
        self.is_complete = first == 0
        self.is_told = False
        self._digest = None

    def admit(self, sequence: int, *, last: int | None = None) -> Arrival:
        """What a live message's number says, or those of messages that came as one; see `SequenceTracker.feed`."""
        arrival = self.tracker.feed(sequence, last=last)
        if self.begins_anywhere and arrival in {Arrival.GAP, Arrival.IN_ORDER}:
            self.begins_anywhere = False
            self.tracker.jump(sequence, last=last)
            if sequence == 0:
                # All that the cache holds will be seen, and whatever the index has of it is older.
                self.is_complete = True
                self.clear_index(even_if_untold=True)
            return Arrival.IN_ORDER
        return arrival

    def lose(self, *, tell: bool = True) -> None:
        """Events were lost: what is known may be wrong, and the index has to forget it. Numbers go on."""
        if not self.mirror.is_empty:
            self.mirror.clear()
        self.is_complete = False
        if tell:
            self.clear_index()

    def rename(self, holder: str) -> None:
        """From now on write for another holder; what was written for this one is taken back."""
        self.clear_index(even_if_untold=True)
        self.holder = holder
        self._has_told = False
        self._losses = self._sink.losses_of(holder)

    def clear_index(self, *, even_if_untold: bool = False) -> None:
        """Take back what the index was told, and what answers told it."""
        if (self._has_told or even_if_untold) and self._may_write():
            self._sink.clear(self.holder)
            self._has_told = False

    async def apply(self, events: Sequence[Event], *, tell: bool = True) -> None:
        """Take events, in order, and tell the index. O(blocks), in turns."""
        for piece in pieces(events, PIECE_BLOCKS):
            changes = self.mirror.apply(piece)
            if tell:
                await self._tell(changes)
            if any(isinstance(event, Cleared) for event in piece):
                self.is_complete = True
            await self.breathe()

    async def retell(self) -> None:
        """Tell the index all there is; from then on it is told what changes."""
        if self.mirror.blocks > _BLOCKS_TO_RETELL_AT_ONCE:
            await self._tell(await asyncio.to_thread(self.mirror.everything))
        else:
            await self._tell(self.mirror.everything())
        self.is_told = True

    async def make_good(self) -> None:
        """Tell the index again where it has lost what it was told: Redis was emptied, a replica ended the holder."""
        losses = self._sink.losses_of(self.holder)
        if losses != self._losses:
            self._losses = losses  # first, so that what is lost meanwhile is told once more
            await self.retell()

    def is_turn_over(self) -> bool:
        """Whether others should have their turn."""
        return time.monotonic() >= self._turn_ends_s

    def start_turn(self) -> None:
        """We have just got our turn."""
        self._turn_ends_s = time.monotonic() + self._options.turn_s

    async def breathe(self) -> None:
        """Let others have their turn, if ours was long enough."""
        if self.is_turn_over():
            await asyncio.sleep(0)
            self.start_turn()

    async def _tell(self, changes: Sequence[Change]) -> None:
        for change in changes:
            while self._sink.queued_writes >= self._options.queued_writes:  # noqa: ASYNC110 - a sink notifies nobody
                await asyncio.sleep(_HOLD_BACK_S)
            # A lease that ran out takes the word from us; whoever begins again tells everything.
            if not self._may_write():
                return
            match change:
                case Observe(chain, claim):
                    self._sink.observe(self.holder, chain, claim)
                    self._has_told = True
                case Forget(chain, from_block, claim):
                    self._sink.forget(self.holder, chain, from_block, claim)
                case _:  # Clear
                    self.clear_index(even_if_untold=True)
            await self.breathe()


def pieces(events: Sequence[Event], at_most_blocks: int) -> Iterator[list[Event]]:
    """The events in lists that name at most so many blocks each, or one event; longer runs of blocks are cut."""
    piece: list[Event] = []
    room = at_most_blocks
    for event in events:
        for part in _parts(event, at_most_blocks):
            blocks = _blocks(part)
            if piece and blocks > room:
                yield piece
                piece, room = [], at_most_blocks
            piece.append(part)
            room -= blocks
    if piece:
        yield piece


def _blocks(event: Event) -> int:
    if isinstance(event, Stored):
        return max(len(event.hashes), len(event.tokens) // (TOKEN_BYTES * _TOKENS_OF_A_BLOCK))
    return len(event.hashes) if isinstance(event, Removed) else 1


def _parts(event: Event, at_most_blocks: int) -> Iterator[Event]:
    if not isinstance(event, Stored | Removed) or _blocks(event) <= at_most_blocks:
        yield event
        return
    if isinstance(event, Removed):
        for start in range(0, len(event.hashes), at_most_blocks):
            yield replace(event, hashes=event.hashes[start : start + at_most_blocks])
        return
    width = event.block_size * TOKEN_BYTES
    step = max(1, min(at_most_blocks, at_most_blocks * _TOKENS_OF_A_BLOCK // event.block_size))
    for start in range(0, len(event.hashes), step):
        end = start + step
        yield replace(
            event,
            hashes=event.hashes[start:end],
            parent=event.hashes[start - 1] if start else event.parent,
            tokens=TokenIds(event.tokens[start * width : end * width]),
            has_media=None if event.has_media is None else event.has_media[start:end],
            salt=None if start else event.salt,
        )
