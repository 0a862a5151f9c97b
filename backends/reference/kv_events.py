"""What enters and leaves the prefix cache, told as vLLM 0.32 tells it.

    pool, scheduler --stored, removed, cleared--> EventLog --one batch a step--> publish(payload)

A batch is a MessagePack array `[seconds since 1970, [event, ...], rank]`, an event a map with its `type`. Events stand
in the order in which they happened: what had to make room for a block is removed before the block is stored. Blocks of
one request that became findable together are one event; each evicted block is one of its own. A hash goes out as the
last 8 bytes of its digest, big-endian; the salt stands in clear with the first block of a prompt, and nowhere else.

Nothing is told twice here: one hash, one block. A vLLM may keep equal blocks side by side and tell each.
"""

from collections.abc import Callable, Sequence

import msgspec

from backends.reference.types import BlockHash

MEDIUM = "GPU"
"""As vLLM says it even on a CPU: the memory that the engine computes from."""
HASH_ON_WIRE_BYTES = 8


class BlockStored(msgspec.Struct, frozen=True, tag_field="type", tag="BlockStored"):
    """Consecutive blocks of a prompt or an answer, behind `parent_block_hash` (None: from the start)."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    extra_keys: list[list[str] | None]
    lora_id: int | None = None
    medium: str = MEDIUM
    lora_name: str | None = None
    group_idx: int = 0
    kv_cache_spec_kind: str = "full_attention"


class BlockRemoved(msgspec.Struct, frozen=True, tag_field="type", tag="BlockRemoved"):
    """Blocks that no request can find any more."""

    block_hashes: list[int]
    medium: str = MEDIUM
    group_idx: int = 0


class AllBlocksCleared(msgspec.Struct, frozen=True, tag_field="type", tag="AllBlocksCleared"):
    """The cache is empty."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventLog:
    """Collects the events of a step on the engine's thread, and gives them on as one batch.

    `publish` gets the payload and must not block. `clock` is wall time, in seconds.
    """

    def __init__(self, block_size: int, publish: Callable[[bytes], None], clock: Callable[[], float]) -> None:
        self._block_size = block_size
        self._publish = publish
        self._clock = clock
        self._encode = msgspec.msgpack.Encoder().encode
        self._events: list[Event] = []

    def stored(self, names: Sequence[BlockHash], parent: BlockHash | None, tokens: Sequence[int], salt: str) -> None:
        """Blocks became findable; `parent` is None for the first of a prompt, `tokens` are those of all of them."""
        extra_keys: list[list[str] | None] = [None] * len(names)
        if salt and parent is None:
            extra_keys[0] = [salt]
        self._events.append(
            BlockStored(
                block_hashes=[on_wire(name) for name in names],
                parent_block_hash=None if parent is None else on_wire(parent),
                token_ids=list(tokens),
                block_size=self._block_size,
                extra_keys=extra_keys,
            )
        )

    def removed(self, name: BlockHash) -> None:
        """A block was evicted."""
        self._events.append(BlockRemoved([on_wire(name)]))

    def cleared(self) -> None:
        """The cache was emptied."""
        self._events.append(AllBlocksCleared())

    def flush(self) -> None:
        """Publish what was collected, if anything was."""
        if self._events:
            self._publish(self._encode((self._clock(), self._events, 0)))
            self._events = []


def on_wire(name: BlockHash) -> int:
    """A block's hash as events say it: its last 8 bytes, big-endian and unsigned."""
    return int.from_bytes(name[-HASH_ON_WIRE_BYTES:], "big")
