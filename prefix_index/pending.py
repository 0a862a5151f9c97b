"""A replica reads its own writes: what Redis has not taken in yet is laid over what Redis says.

    Redis says of a b c d    {A: 2}
    on their way             observe A  a b c x    -->  A: 3, the blocks that both chains share
                             forget  A  a b y, 1   -->  A: 1
                             clear   A             -->  nothing of A

Without it, a turn that follows its predecessor within a millisecond would not find what that one has left behind. Only
what is on its way is laid over, not all that this replica once saw: where other replicas know better, they do.

Of a long queue, which is a slow Redis, the latest writes are looked at, and all endings: what was cleared is not
claimed, however many writes came since. A loss that is not among the latest, and that no ending follows, is missed
until Redis has it.

Cost: nothing where nothing is on its way; else O(writes), most of them one look: a run of k blocks can only change by a
write that has block k of this chain, and equal hashes there mean that all before it is equal too.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from prefix_index.blocks import common_blocks
from prefix_index.radix_nodes import RANKS
from prefix_index.types import HASH_BYTES, Chain, Match
from prefix_index.write_queue import Write

MOST_PENDING: Final = 64
"""Of the writes on their way, the latest ones."""
_ALL_RANKS: Final = tuple(RANKS.values())


def with_pending(
    found: Match[str], chain: Chain, writes: Sequence[Write], ending: Collection[str] = frozenset()
) -> Match[str]:
    """What `found` will be once `writes`, oldest first, have reached Redis; `ending` are holders that end before them.

    An ending among the latest writes may be named in both.
    """
    if not writes and not ending:
        return found
    runs = _Runs((found.speculative, found.blocks, found.host, found.disk))
    for holder in ending:
        runs.end(holder)
    now, hashes = runs.now, chain.hashes
    for write in writes[-MOST_PENDING:]:
        if write.ending:
            runs.end(write.holder)
            continue
        told, from_block = write.chain.hashes, write.from_block
        for rank in _ALL_RANKS if write.claim is None else (RANKS[write.claim],):
            run = now[rank].get(write.holder, 0)
            at = (run if from_block is None else from_block) * HASH_BYTES
            end = at + HASH_BYTES
            if told[at:end] != hashes[at:end] or len(told) < end:
                continue
            if from_block is None:
                runs.set(rank, write.holder, common_blocks(told, hashes))
            elif run > from_block:
                runs.set(rank, write.holder, from_block)
    speculative, confirmed, host, disk = now
    ages_s = found.ages_s if confirmed is found.blocks else _ages_s(found, confirmed)
    return Match(confirmed, found.loads, found.walked_blocks, found.truncated, speculative, host, disk, ages_s)


class _Runs:
    """Runs by claim and holder, in the order of `RANKS`; those of a claim are copied at their first change."""

    __slots__ = ("_copied", "now")

    def __init__(self, runs: Sequence[Mapping[str, int]]) -> None:
        self.now = list(runs)
        self._copied: dict[int, dict[str, int]] = {}

    def set(self, rank: int, holder: str, run: int) -> None:
        mine = self._copied.get(rank)
        if mine is None:
            mine = self.now[rank] = self._copied[rank] = dict(self.now[rank])
        if run:
            mine[holder] = run
        else:
            mine.pop(holder, None)

    def end(self, holder: str) -> None:
        for rank in _ALL_RANKS:
            if holder in self.now[rank]:
                self.set(rank, holder, 0)


def _ages_s(found: Match[str], confirmed: Mapping[str, int]) -> dict[str, float]:
    """How long ago the ends of confirmed runs were used: those that grew, just now."""
    return {
        holder: found.ages_s[holder] if run <= found.blocks.get(holder, 0) else 0.0
        for holder, run in confirmed.items()
        if holder in found.ages_s or run > found.blocks.get(holder, 0)
    }
