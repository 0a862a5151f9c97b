"""An index that follows one engine by its KV events alone, and what it expects of the engine's next prompt.

engine ──PUB──> SUB ──SequenceTracker──> decode_batch ──> Mirror ──> RadixIndex ──match──> expected tokens
   `───ROUTER─> DEALER, for what was missed ─────┘
"""

from dataclasses import dataclass
from struct import pack

import zmq

from backends import EndpointFacts
from gateway.roots import root_of_event
from prefix_index import RadixIndex, TokenIds, chain_of
from prefix_index.kv_events import (
    Arrival,
    Clear,
    Cleared,
    Forget,
    Message,
    Mirror,
    Observe,
    Removed,
    SequenceTracker,
    Stored,
    decode_batch,
)

QUIET_MS = 300
"""An engine that has said nothing for so long has said all of what it did."""
REPLAY_WITHIN_MS = 20_000
MAX_BLOCKS = 10_000
HOLDER = "engine"

Context = zmq.Context[zmq.Socket[bytes]]


@dataclass(slots=True)
class Heard:
    """What has come in, for the table."""

    batches: int = 0
    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    replayed_batches: int = 0
    restarts: int = 0


class Follower:
    """Follows the first source of an endpoint. Not thread-safe; close it."""

    def __init__(self, context: Context, facts: EndpointFacts) -> None:
        [source] = facts.event_sources
        assert facts.block_size is not None
        assert source.replay_url is not None
        self.block_size = facts.block_size
        self.heard = Heard()
        self._facts = facts
        self._index: RadixIndex[str] = RadixIndex()
        assert facts.capacity_blocks is not None
        self._index.set_capacity(HOLDER, facts.capacity_blocks)
        self._mirror = Mirror(self._root, self.block_size, MAX_BLOCKS)
        self._sequence = SequenceTracker()
        self._live = context.socket(zmq.SUB)
        self._live.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
        # An address to be bound says all of the machine; a test listens to itself alone.
        if source.is_bound:
            self._live.bind(source.url.replace("*", "127.0.0.1"))
        else:
            self._live.connect(source.url)
        self._replays = context.socket(zmq.DEALER)
        self._replays.setsockopt(zmq.RCVTIMEO, REPLAY_WITHIN_MS)
        self._replays.connect(source.replay_url)
        for socket in (self._live, self._replays):
            socket.setsockopt(zmq.LINGER, 0)

    def close(self) -> None:
        """Close the sockets."""
        self._live.close()
        self._replays.close()

    def expected_tokens(self, prompt: list[int], salt: str | None) -> int:
        """The tokens of a prompt that the engine will find in its cache: whole blocks, never the last token's."""
        root = self._root(None, salt)
        assert root is not None
        tokens = TokenIds(pack(f"<{len(prompt)}I", *prompt))
        match = self._index.match(chain_of(tokens, root, self.block_size))
        blocks = min(match.blocks.get(HOLDER, 0), (len(prompt) - 1) // self.block_size)
        return blocks * self.block_size

    def catch_up(self) -> None:
        """Take all that the engine has to say, until it is quiet; ask again for what was missed.

        Also for what came last, behind which nothing could show the gap: a publisher that connects to us, or we to it,
        is not heard at once.
        """
        while self._live.poll(QUIET_MS):
            self._take_live()
        self._replay()

    def _take_live(self) -> None:
        message = Message.from_frames(self._live.recv_multipart())
        while (arrival := self._sequence.feed(message.sequence)) is not Arrival.IN_ORDER:
            if arrival is Arrival.DUPLICATE:
                return
            if arrival is Arrival.RESTARTED:
                self.heard.restarts += 1
                self._mirror.clear()
                self._index.clear(HOLDER)
            else:
                self._replay()
        self._take(message)

    def _replay(self) -> None:
        self._replays.send_multipart([b"", self._sequence.expected.to_bytes(8, "big")])
        while (message := Message.from_replay(self._replays.recv_multipart())) is not None:
            arrival = self._sequence.feed(message.sequence, replayed=True)
            assert arrival in (Arrival.IN_ORDER, Arrival.DUPLICATE), "a replay has gaps itself"
            if arrival is Arrival.IN_ORDER:
                self.heard.replayed_batches += 1
                self._take(message)

    def _take(self, message: Message) -> None:
        self.heard.batches += 1
        batch = decode_batch(message.payload)
        assert batch.skipped == 0
        for event in batch.events:
            match event:
                case Stored():
                    self.heard.stored_blocks += len(event.hashes)
                case Removed():
                    self.heard.removed_blocks += len(event.hashes)
                case Cleared():
                    self.heard.clears += 1
        for change in self._mirror.apply(batch.events):
            match change:
                case Observe():
                    self._index.observe(HOLDER, change.chain, change.claim)
                case Forget():
                    self._index.forget(HOLDER, change.chain, change.from_block, change.claim)
                case Clear():
                    self._index.clear(HOLDER)

    def _root(self, adapter: str | None, salt: str | None) -> bytes | None:
        return root_of_event(self._facts, adapter, salt, self.block_size)
