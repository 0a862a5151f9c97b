"""What one cache of one engine holds, and what that means in our chains.

    engine's events                    forest of blocks                     asked of the index
    Stored  P Q   parent -             P -- Q -- R   reach  0 0 0           Observe(P Q R, confirmed)
    Stored  R     parent Q                   `-- S   reach  1               Observe(P Q S, host)
    Removed Q                          P -- q -- R   reach  0 3 3           Forget(P Q, from 1) confirmed, and host

Engines say which blocks enter and leave; the index wants leading runs. So each block has a *level*, the nearest
memory that has it (0 GPU, 1 host, 2 disk or afar, 3 none), and a *reach*, the worst level from the root down to it:
the claim under which its whole prefix is to be had. Reach only grows along a chain, so the claims are nested runs. A
block that is gone stays in the forest while something hangs on it: it may come back, and then its descendants are
within reach again.

One batch is applied as a whole, and the changes are the difference between before and after: a block that came and
went costs nothing, one Forget names the topmost block of what was lost, one Observe the end of what was gained. A run
that is reachable as CONFIRMED is not told as HOST again (whoever reads takes the better of the two); it is told once
the GPU's copy goes and the host's stays. `told` keeps what the index was told, a bit a claim.

Rules, and what they are careful about (what is claimed is never more than the engine holds):
  - copies are counted for each memory and group of layers, as vLLM announces every physical block; `counted=False` is
    for engines that keep each block once (SGLang, TensorRT-LLM). A memory has a block when **all** its groups have it;
  - a block whose parent is unknown is an *orphan*: kept with its tokens, which join a chain once the parent is known.
    Beyond `ORPHAN_TOKEN_BYTES` of tokens, orphans join only when they are stored again;
  - media, embeddings, roots that nobody has: such a block and all below it are *untranslated*, followed and never told;
  - one hash below two parents (SGLang to 0.5.5 hashed a page without what is before it): untranslated from there on;
  - a chain with two names is held until both are gone;
  - at most `max_blocks` are followed. Above, blocks out of reach are given up where they are many, and new ones are not
    taken in (`refused`): those that are known longest are the stems that others hang on.

Costs: O(1) a block stored (10 µs) or removed (4 µs), O(depth) for each change told (80 µs at 500 blocks); a Forget also
visits all that was lost below it. The index is trusted to keep what it was told: where it drops a holder's tails on its
own, `everything` brings it up to date. Plain calls on one thread.
"""

from collections.abc import Callable, Iterable

from prefix_index.blocks import root_hash
from prefix_index.kv_events.copies import Copies
from prefix_index.kv_events.forest import CHAINED, FREE, NONE, OPAQUE, ORPHAN, ROOT, STATES, UNKNOWN, Forest
from prefix_index.kv_events.reach import CLAIMS, Reach
from prefix_index.kv_events.types import Change, Clear, Cleared, Event, Moved, Observe, Removed, Stored
from prefix_index.types import TOKEN_BYTES, Claim

MiB = 1024 * 1024

ORPHAN_TOKEN_BYTES = 16 * MiB
"""Token ids kept for orphans, in all: 4 million."""

MAX_OURS_PER_BLOCK = 1024
"""Blocks of ours in one of the engine's; a larger one is not translated."""

RootOf = Callable[[str | None, str | None], bytes | None]
"""(adapter, salt) -> the root of such prompts' chains, None where there is none."""


class Mirror:
    """One cache: one engine, one data-parallel rank.

    `block_size` is ours, in tokens; the engine's come with its events. `refused` counts blocks that found no room.
    """

    def __init__(self, root_of: RootOf, block_size: int, max_blocks: int, *, counted: bool = True) -> None:
        self._root_of = root_of
        self._block_size = block_size
        self._max_blocks = max_blocks
        self._counted = counted
        self.refused = 0
        self.clear()

    def clear(self) -> None:
        """The cache holds nothing, as far as is known."""
        self._forest = Forest(self._block_size)
        self._copies = Copies(counted=self._counted)
        self._reach = Reach(self._forest, self._copies)
        self._orphan_tokens: dict[int, bytes] = {}
        self._orphan_bytes = 0
        self._tally = [0] * STATES
        self._touched: dict[int, None] = {}
        self._is_full = False

    @property
    def is_empty(self) -> bool:
        """Whether no block is followed, held or not."""
        return not len(self._forest)

    @property
    def blocks(self) -> int:
        """The engine's blocks that some memory holds."""
        return sum(self._tally)

    @property
    def orphans(self) -> int:
        """Those of them whose parent, or a parent of it, is unknown."""
        return self._tally[ORPHAN]

    @property
    def untranslated(self) -> int:
        """Those of them that have no chain of ours."""
        return self._tally[OPAQUE]

    @property
    def size_bytes(self) -> int:
        """Memory of what is followed, in bytes."""
        return self._forest.size_bytes + self._copies.size_bytes + self._reach.size_bytes + self._orphan_bytes

    def apply(self, events: Iterable[Event]) -> list[Change]:
        """Take one batch; returns what it changed: a Clear, then Forgets, then Observes, as few as there can be."""
        changes: list[Change] = []
        for event in events:
            match event:
                case Cleared():
                    self.clear()
                    changes = [Clear()]
                case Stored():
                    self._store(event)
                case Removed():
                    self._remove(event)
                case _:
                    self._move(event)
        changes += self._reach.settle(self._touched)
        self._give_back(self._touched)
        self._touched = {}
        if self._is_full:
            self._give_up_what_is_out_of_reach()
        return changes

    def everything(self) -> list[Observe]:
        """All that is within reach, for an index that knows nothing of it. O(blocks)."""
        return self._reach.retell()

    def _store(self, event: Stored) -> None:
        if not event.full or not event.hashes:
            return
        level = CLAIMS.index(event.claim)
        # First, as blocks that find no room show as well that a group exists, of which others then lack a part.
        self._meet(level, event.group)
        parent: int | None = ROOT
        before: int | None = None
        if event.parent is not None:
            parent = self._slot(event.parent)
        elif (root := self._root_of(event.adapter, event.salt)) is not None:
            before = root_hash(root)
        width = event.block_size * TOKEN_BYTES
        is_too_wide = event.block_size > MAX_OURS_PER_BLOCK * self._block_size
        for position, name in enumerate(event.hashes):
            slot = None if parent is None else self._slot(name)
            if parent is None or slot is None:
                self.refused += len(event.hashes) - position
                return
            is_opaque = is_too_wide or (event.has_media is not None and event.has_media[position])
            tokens = event.tokens[position * width : (position + 1) * width]
            self._place(slot, parent, before, None if is_opaque else tokens)
            self._add(slot, level, event.group)
            parent, before = slot, None

    def _remove(self, event: Removed) -> None:
        for name in event.hashes:
            slot = self._forest.names.find(name)
            if slot != NONE:
                self._take(slot, event.claim, event.group)

    def _move(self, event: Moved) -> None:
        self._meet(CLAIMS.index(event.after), None)
        slot = self._forest.names.find(event.hash)
        if slot != NONE:
            self._take(slot, event.before, None)
            self._add(slot, CLAIMS.index(event.after), None)

    def _slot(self, name: int) -> int | None:
        """The slot of an engine's block, a new one where it has none; None where there is no room for one."""
        forest = self._forest
        slot = forest.names.find(name)
        if slot != NONE:
            return slot
        if len(forest) >= self._max_blocks:
            self._is_full = True
            return None
        slot = forest.new(name)
        if slot >= len(self._copies.held):
            self._copies.make_room(forest.slots)
            self._reach.make_room(forest.slots)
        self._touched[slot] = None
        return slot

    def _meet(self, level: int, group: int | None) -> None:
        """A memory and a group of layers; where others lack a part now, the level of any block may be another."""
        if self._copies.meet(level, group):
            self._touched.update(dict.fromkeys(range(self._forest.slots)))

    def _add(self, slot: int, level: int, group: int | None) -> None:
        was_held = self._copies.held[slot] > 0
        self._copies.add(slot, level, group)
        self._tally[self._forest.state[slot]] += (self._copies.held[slot] > 0) - was_held
        self._touched[slot] = None

    def _take(self, slot: int, claim: Claim | None, group: int | None) -> None:
        was_held = self._copies.held[slot] > 0
        if claim is None:
            self._copies.take_all(slot)
        else:
            self._copies.take(slot, CLAIMS.index(claim), group)
        self._tally[self._forest.state[slot]] += (self._copies.held[slot] > 0) - was_held
        self._touched[slot] = None

    def _place(self, slot: int, parent: int, before: int | None, tokens: bytes | None) -> None:
        """Hang a block below its parent, or below the root with `before` as hash, if it does not hang there yet.

        `tokens` are None where they do not say what the block holds, `before` is None where the root is not known.
        """
        forest = self._forest
        if forest.parent[slot] == UNKNOWN:
            if slot == parent or (forest.child[slot] != NONE and forest.is_above(slot, parent)):
                self._make_opaque(slot)
                return
            forest.link(slot, parent)
        elif forest.parent[slot] != parent:
            self._make_opaque(slot)
            return
        elif forest.state[slot] != ORPHAN:
            return
        if tokens is None or (before is None if parent == ROOT else forest.state[parent] == OPAQUE):
            self._make_opaque(slot)
        elif parent != ROOT and forest.state[parent] == ORPHAN:
            self._keep_tokens(slot, tokens)
        else:
            self._set_chained(slot, tokens, before)

    def _keep_tokens(self, slot: int, tokens: bytes) -> None:
        if slot not in self._orphan_tokens and self._orphan_bytes + len(tokens) <= ORPHAN_TOKEN_BYTES:
            self._orphan_tokens[slot] = tokens
            self._orphan_bytes += len(tokens)

    def _lose_tokens(self, slot: int) -> bytes | None:
        tokens = self._orphan_tokens.pop(slot, None)
        self._orphan_bytes -= len(tokens or b"")
        return tokens

    def _set_chained(self, slot: int, tokens: bytes, before: int | None) -> None:
        """Give a block its chain, and then all orphans below it whose tokens are kept."""
        forest = self._forest
        forest.fix_chain(slot, tokens, before or 0)
        self._set_state(slot, CHAINED)
        if not self._orphan_tokens:
            return
        self._lose_tokens(slot)
        waiting = [slot]
        while waiting:
            for child in forest.children(waiting.pop()):
                own = self._lose_tokens(child)
                if own is not None:
                    forest.fix_chain(child, own, 0)
                    self._set_state(child, CHAINED)
                    waiting.append(child)

    def _make_opaque(self, slot: int) -> None:
        waiting = [slot]
        while waiting:
            slot = waiting.pop()
            self._lose_tokens(slot)
            self._set_state(slot, OPAQUE)
            waiting.extend(self._forest.children(slot))

    def _set_state(self, slot: int, state: int) -> None:
        if self._copies.held[slot]:
            self._tally[self._forest.state[slot]] -= 1
            self._tally[state] += 1
        self._forest.state[slot] = state
        self._touched[slot] = None

    def _give_back(self, slots: Iterable[int]) -> None:
        """Free what nobody holds and nothing hangs on, and then what hung on by that alone."""
        forest, held = self._forest, self._copies.held
        for slot in slots:
            last = slot
            while last >= 0 and not held[last] and forest.child[last] == NONE and forest.state[last] != FREE:
                self._lose_tokens(last)
                parent = forest.parent[last]
                forest.drop(last)
                last = parent

    def _give_up_what_is_out_of_reach(self) -> None:
        """Make room, where that is worth looking at every block."""
        self._is_full = False
        forest = self._forest
        if len(forest) - self._reach.within <= self._max_blocks // 16:
            return
        out = [slot for slot in range(forest.slots) if forest.state[slot] != FREE and self._reach.is_out(slot)]
        for slot in out:
            self._take(slot, None, None)
        self._give_back(out)
        self._touched = {}
