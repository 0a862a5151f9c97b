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

Cost: nothing where nothing is on its way; else O(writes), and O(log blocks) for each that begins as the chain does.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from prefix_index.blocks import common_blocks
from prefix_index.types import HASH_BYTES, Chain, Claim, Match
from prefix_index.write_queue import Write

MOST_PENDING: Final = 64
"""Of the writes on their way, the latest ones."""


def with_pending(
    found: Match[str], chain: Chain, writes: Sequence[Write], ending: Collection[str] = frozenset()
) -> Match[str]:
    """What `found` will be once `writes`, oldest first, have reached Redis; `ending` are holders that end before them.

    An ending among the latest writes may be named in both.
    """
    changes = [write for write in writes[-MOST_PENDING:] if write.ending or _begin_alike(write.hashes, chain.hashes)]
    if not changes and not ending:
        return found
    runs = {
        Claim.CONFIRMED: dict(found.blocks),
        Claim.SPECULATIVE: dict(found.speculative),
        Claim.HOST: dict(found.host),
        Claim.DISK: dict(found.disk),
    }
    for holder in ending:
        for run in runs.values():
            run.pop(holder, None)
    for write in changes:
        for claim in write.claims:
            _apply(write, runs[claim], 0 if write.ending else common_blocks(write.hashes, chain.hashes))
    confirmed = runs[Claim.CONFIRMED]
    ages_s = {
        holder: found.ages_s[holder] if run <= found.blocks.get(holder, 0) else 0.0
        for holder, run in confirmed.items()
        if holder in found.ages_s or run > found.blocks.get(holder, 0)
    }
    return replace(
        found,
        blocks=confirmed,
        ages_s=ages_s,
        speculative=runs[Claim.SPECULATIVE],
        host=runs[Claim.HOST],
        disk=runs[Claim.DISK],
    )


def _apply(write: Write, runs: dict[str, int], shared: int) -> None:
    run = runs.get(write.holder, 0)
    if write.ending:
        run = 0
    elif write.from_block is None:
        run = max(run, shared)
    elif shared > write.from_block:
        run = min(run, write.from_block)
    if run:
        runs[write.holder] = run
    else:
        runs.pop(write.holder, None)


def _begin_alike(one: bytes, other: bytes) -> bool:
    return bool(one) and one[:HASH_BYTES] == other[:HASH_BYTES]
