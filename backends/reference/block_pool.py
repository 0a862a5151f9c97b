"""The physical blocks of the KV cache: who holds them, what they hold, which dies next.

      requests                      blocks                              free queue (dies first ... dies last)
    A: [0 1 2 5]      0: held by 2, "h0"     1: held by 2, "h1"           4(blank)  7 "h9"  6 "h8"  3 "h2'"
    B: [0 1 3']  -->  2: held by 1, "h2"     5: held by 1, filling               ^tails before heads^

A block is *held* (some request has it in its table) or *free*; a block that is complete also has a *hash* that names
its tokens, all tokens before them, and the salt. A free block keeps its hash and its content until it is handed out
again, so a later request with the same prefix finds it: that is the prefix cache.

Invariants (the property test checks them after every step):
  - held + free = all blocks, and a block is in the free queue exactly when nobody holds it;
  - at most one block has a given hash: publishing a second one gives back the first;
  - the cache is closed under prefixes: who has a block's hash has its parent's, because a request holds a whole prefix,
    lets go of it tail first, and the queue evicts in that order. So a look-up may stop at the first miss.

Costs: every operation is O(1) a block. Only the engine's thread mutates; counters may be read from anywhere.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import pack

from backends.reference.types import BlockHash, BlockId, CacheListener

HASH_ALGORITHM = "blake2b-128"
HASH_BYTES = 16


def root_hash(salt: str) -> BlockHash:
    """Where the chain of a salt starts; two salts share no hash."""
    return BlockHash(blake2b(b"prefixgate-reference\0" + salt.encode(), digest_size=HASH_BYTES).digest())


def block_hash(parent: BlockHash, tokens: Sequence[int]) -> BlockHash:
    """Hash of a block after `parent`: BLAKE2b-128 of the parent's hash and the tokens as uint32 little-endian.

    Cryptographic on purpose: two prompts that could be made to collide would read each other's cache.
    """
    return BlockHash(blake2b(parent + pack(f"<{len(tokens)}I", *tokens), digest_size=HASH_BYTES).digest())


class Unheard:
    """A listener for a cache that nobody follows."""

    def stored(self, names: Sequence[BlockHash], parent: BlockHash | None, tokens: Sequence[int], salt: str) -> None:
        """Does nothing, as the others."""

    def removed(self, name: BlockHash) -> None: ...

    def cleared(self) -> None: ...


@dataclass(slots=True)
class _Block:
    holders: int = 0
    hash: BlockHash | None = None


class BlockPool:
    """Reference-counted blocks with a prefix cache in the free ones.

    `listener` hears of evictions and of an emptied cache; of what is stored the scheduler tells it, which knows the
    tokens.
    """

    def __init__(self, total_blocks: int, listener: CacheListener | None = None) -> None:
        self.listener = listener or Unheard()
        self._blocks = [_Block() for _ in range(total_blocks)]
        self._free: OrderedDict[BlockId, None] = OrderedDict.fromkeys(BlockId(i) for i in range(total_blocks))
        self._by_hash: dict[BlockHash, BlockId] = {}
        self.evicted_blocks = 0

    @property
    def total_blocks(self) -> int:
        """Capacity, in blocks."""
        return len(self._blocks)

    @property
    def free_blocks(self) -> int:
        """Blocks nobody holds, cached or blank."""
        return len(self._free)

    @property
    def held_blocks(self) -> int:
        """Blocks in some request's table."""
        return len(self._blocks) - len(self._free)

    @property
    def cached_blocks(self) -> int:
        """Blocks a later request could find, held or free."""
        return len(self._by_hash)

    def match(self, chain: Iterable[BlockHash]) -> list[BlockId]:
        """The blocks of the leading run of `chain` that is cached; holds nothing."""
        found: list[BlockId] = []
        for name in chain:
            block = self._by_hash.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def free_among(self, blocks: Iterable[BlockId]) -> int:
        """How many of `blocks` nobody holds; holding them takes that many from the free ones."""
        return sum(block in self._free for block in blocks)

    def hold(self, blocks: Iterable[BlockId]) -> None:
        """One more holder for each of `blocks`."""
        for block in blocks:
            if self._blocks[block].holders == 0:
                del self._free[block]
            self._blocks[block].holders += 1

    def allocate(self) -> BlockId:
        """A blank block with one holder; evicts what died longest ago. The caller has checked `free_blocks`."""
        block, _ = self._free.popitem(last=False)
        record = self._blocks[block]
        if record.hash is not None:
            del self._by_hash[record.hash]
            self.listener.removed(record.hash)
            record.hash = None
            self.evicted_blocks += 1
        record.holders = 1
        return block

    def publish(self, block: BlockId, name: BlockHash) -> BlockId:
        """Enter a complete block, held by one request, under its hash; returns the block to use from now on.

        When another block has that hash already, the holder moves over to it and its own becomes blank: two requests
        that computed the same prefix side by side end up sharing it.
        """
        existing = self._by_hash.setdefault(name, block)
        if existing == block:
            self._blocks[block].hash = name
            return block
        self.hold((existing,))
        self.release((block,))
        return existing

    def release(self, blocks: Sequence[BlockId]) -> None:
        """One holder less for each block of a table, given in order; tails go to the free queue before heads."""
        for block in reversed(blocks):
            record = self._blocks[block]
            assert record.holders > 0, "released more often than held"
            record.holders -= 1
            if record.holders == 0:
                self._free[block] = None
                if record.hash is None:
                    self._free.move_to_end(block, last=False)

    def forget(self) -> bool:
        """Empty the prefix cache; refuses (False) while any block is held."""
        if self.held_blocks:
            return False
        for block in self._by_hash.values():
            self._blocks[block].hash = None
        self._by_hash.clear()
        self.listener.cleared()
        return True
