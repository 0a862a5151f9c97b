"""A paged KV cache of named blocks: what is held, what lies free and can be found again, what goes next.

      chain of a prompt        a b c d e f | . .        named whole blocks | anonymous: partial block, answer
      pins                     3 3 2 1 1 1                never rise along a chain: who holds a block holds its prefix
      found by another prompt  a b c d e f                the leading run of its own chain that is named here

      free runs, oldest first  [k l m][g h][p q r s]      a run is what one request set free; it dies from its tail

A block's name tells its whole prefix, and a request pins, computes and frees whole prefixes. So three things hold at
all times, and everything here rests on them:
  - named blocks are closed under prefixes: the blocks of a chain that are here are a leading run of it, found by
    bisection, not block by block;
  - pins never rise along a chain: what becomes free when a request ends is the end of its chain, one *run*;
  - of a free run, what other requests have taken up since is its beginning: a tail that was taken up means that the
    whole run was. A run is therefore four values, whatever its length, and stale runs are dropped when they come up.

Freed tail first, evicted oldest first: a chain's tail goes before its head, as in vLLM. Two requests that compute the
same block side by side end up sharing it (vLLM keeps both copies until they end): the simulation is thriftier there.

With a host tier, evicted blocks go there and are moved back when a prompt asks for them; a block is in one tier only.

Costs: a look-up is O(log blocks); pinning and freeing are one C-speed dictionary update a run, and an increment a block
that others hold too. Memory: one dictionary entry a named block, one small tuple a freed run.
"""

from bisect import bisect_left
from collections import deque
from itertools import repeat
from typing import NamedTuple, Protocol

BLOCK_NAME_BYTES = 8


class CacheListener(Protocol):
    """Hears which blocks of a chain (8 bytes each, `start` to `end`) can be found from now on, or no longer."""

    def stored(self, blocks: bytes, start: int, end: int) -> None:
        """The blocks are computed; their prefix is there already."""
        ...

    def removed(self, blocks: bytes, start: int, end: int) -> None:
        """The blocks are gone from all tiers."""
        ...


class Held(NamedTuple):
    """The leading run of a chain that is there, in blocks: `device` first, then `host`."""

    device: int
    host: int


class _Run(NamedTuple):
    """Blocks `start` to `end` of a chain, set free together; `mark` is their entry in the table while they stay so."""

    mark: int
    blocks: bytes
    start: int
    end: int


def names_of(blocks: bytes) -> memoryview:
    """The names of a chain of blocks, as integers, without a copy."""
    return memoryview(blocks).cast("Q")


class KvCache:
    """`capacity_blocks` blocks, each pinned by requests, or free and named, or blank; and a host tier below them.

    The caller keeps the promise of `free_blocks`: it asks for no more than that.
    """

    __slots__ = (
        "_anonymous",
        "_capacity",
        "_free_named",
        "_host",
        "_host_capacity",
        "_host_runs",
        "_listener",
        "_mark",
        "_named",
        "_runs",
        "evicted_blocks",
    )

    def __init__(self, capacity_blocks: int, host_blocks: int = 0, listener: CacheListener | None = None) -> None:
        if capacity_blocks < 1 or host_blocks < 0:
            raise ValueError("a cache has at least one block, and no tier a negative number of them")
        self._capacity = capacity_blocks
        self._host_capacity = host_blocks
        self._listener = listener
        # Pins of a block where positive; the mark of its free run where negative.
        self._named: dict[int, int] = {}
        self._runs: deque[_Run] = deque()
        self._host: dict[int, int] = {}
        self._host_runs: deque[_Run] = deque()
        self._mark = 0
        self._free_named = 0
        self._anonymous = 0
        self.evicted_blocks = 0

    @property
    def held_blocks(self) -> int:
        """Blocks of running requests, named or not."""
        return len(self._named) - self._free_named + self._anonymous

    @property
    def free_blocks(self) -> int:
        """Blocks that can be had: blank ones, and named ones nobody holds."""
        return self._capacity - self.held_blocks

    @property
    def named_blocks(self) -> int:
        """Blocks that a later prompt could find on the device."""
        return len(self._named)

    @property
    def host_blocks(self) -> int:
        """Blocks in the host tier."""
        return len(self._host)

    @property
    def kv_use(self) -> float:
        """Held share of the capacity, 0 to 1."""
        return self.held_blocks / self._capacity

    def cached_blocks(self, blocks: bytes) -> int:
        """The leading run of a chain that either tier has, in blocks. Reads only; O(log blocks)."""
        names = names_of(blocks)
        held = self.find(names, len(names))
        return held.device + held.host

    def find(self, names: memoryview, most: int) -> Held:
        """The leading run of the first `most` names, by tier. Reads only; O(log blocks)."""
        device = _leading(self._named, names, 0, most)
        if not self._host:
            return Held(device, 0)
        return Held(device, _leading(self._host, names, device, most) - device)

    def free_among(self, names: memoryview, found: int) -> int:
        """How many of the first `found` names, all on the device, nobody holds. Reads only; O(log blocks)."""
        return found - self._first_free(names, 0, found)

    def take(self, names: memoryview, held: Held, total_blocks: int) -> None:
        """Pin what was found of a chain (host blocks come back to the device), and room for `total_blocks` in all."""
        self._pin(names, 0, held.device)
        found = held.device + held.host
        if held.host:
            fetched = names[held.device : found]
            for name in fetched:
                del self._host[name]
            self._named.update(zip(fetched, repeat(1)))
        self.grow(total_blocks - found)

    def grow(self, blocks: int) -> None:
        """So many more anonymous blocks for running requests."""
        self._anonymous += blocks
        excess = len(self._named) + self._anonymous - self._capacity
        if excess > 0:
            self._evict(excess)

    def publish(self, blocks: bytes, names: memoryview, start: int, end: int) -> None:
        """A request computed the blocks `start` to `end` of its chain in anonymous blocks: they have names now.

        Where another request was faster, this one shares its block, and its own becomes blank.
        """
        if start >= end:
            return
        here = _leading(self._named, names, start, end)
        self._anonymous -= end - start
        self._pin(names, start, here)
        if here == end:
            return
        self._named.update(zip(names[here:end], repeat(1)))
        known = here
        if self._host:
            known = _leading(self._host, names, here, end)
            for name in names[here:known]:
                del self._host[name]
        if self._listener is not None and known < end:
            self._listener.stored(blocks, known, end)

    def release(self, blocks: bytes, names: memoryview, named: int, anonymous: int) -> None:
        """A request lets go of the first `named` blocks of its chain and of `anonymous` others."""
        self._anonymous -= anonymous
        if not named:
            return
        table = self._named
        shared = bisect_left(names, True, 0, named, key=lambda name: table[name] == 1)
        for name in names[:shared]:
            table[name] -= 1
        if shared == named:
            return
        self._free_named += named - shared
        self._mark -= 1
        table.update(zip(names[shared:named], repeat(self._mark)))
        self._runs.append(_Run(self._mark, blocks, shared, named))
        if len(self._runs) > 2 * self._free_named + 64:
            self._runs = deque(run for run in self._runs if table.get(names_of(run.blocks)[run.end - 1]) == run.mark)

    def _first_free(self, names: memoryview, start: int, end: int) -> int:
        table = self._named
        if start == end or table[names[end - 1]] > 0:
            return end
        return bisect_left(names, True, start, end, key=lambda name: table[name] < 0)

    def _pin(self, names: memoryview, start: int, end: int) -> None:
        """One more holder for blocks that are named on the device."""
        table = self._named
        free = self._first_free(names, start, end)
        for name in names[start:free]:
            table[name] += 1
        if free < end:
            table.update(zip(names[free:end], repeat(1)))
            self._free_named -= end - free

    def _evict(self, excess: int) -> None:
        """Let go of the `excess` free blocks that were freed first."""
        self._free_named -= excess
        self.evicted_blocks += excess
        while excess:
            run = _oldest_tail(self._named, self._runs, excess)
            excess -= run.end - run.start
            if self._host_capacity:
                self._to_host(run)
            elif self._listener is not None:
                self._listener.removed(run.blocks, run.start, run.end)

    def _to_host(self, run: _Run) -> None:
        self._mark -= 1
        self._host.update(zip(names_of(run.blocks)[run.start : run.end], repeat(self._mark)))
        self._host_runs.append(run._replace(mark=self._mark))
        while len(self._host) > self._host_capacity:
            gone = _oldest_tail(self._host, self._host_runs, len(self._host) - self._host_capacity)
            if self._listener is not None:
                self._listener.removed(gone.blocks, gone.start, gone.end)


def _leading(table: dict[int, int], names: memoryview, start: int, end: int) -> int:
    """Where the run of names in `table` that begins at `start` ends. What is in the table is a leading run."""
    if start >= end or names[start] not in table:
        return start
    if names[end - 1] in table:
        return end
    low, high = start, end - 1  # names[low] is there, names[high] is not
    while high - low > 1:
        middle = (low + high) >> 1
        if names[middle] in table:
            low = middle
        else:
            high = middle
    return high


def _oldest_tail(table: dict[int, int], runs: deque[_Run], most: int) -> _Run:
    """Take up to `most` blocks from the tail of the run that was freed first, out of the table and out of the run."""
    while True:
        mark, blocks, start, end = runs.popleft()
        names = names_of(blocks)
        if table.get(names[end - 1]) != mark:
            continue  # all of it was taken up since
        first = max(start, end - most)
        whole = first == start
        if table.get(names[first]) != mark:
            first = bisect_left(names, True, first, end, key=lambda name: table.get(name) == mark)
            whole = True
        for name in names[first:end]:
            del table[name]
        if not whole:
            runs.appendleft(_Run(mark, blocks, start, first))
        return _Run(mark, blocks, first, end)
