"""What the index says of one prompt at one endpoint: a match, read for the caches behind one address.

    holder e@7      rank 0    confirmed 40, host 60           in blocks, leading runs
    holder e@7/1    rank 1    confirmed 70        <-- known   the rank that reaches furthest

Nobody tells to which rank an engine gives a prompt; those that keep affinity by themselves give it to that one.
"""

from collections.abc import Mapping

import msgspec

from prefix_index import Match


class Known(msgspec.Struct, frozen=True, gc=False):
    """Of one prompt in one cache, in blocks, and how long ago the end of the confirmed run was last used."""

    holder: str = ""
    """Whose cache it is: the endpoint's holder, or that of another of its ranks."""
    confirmed_blocks: int = 0
    speculative_blocks: int = 0
    host_blocks: int = 0
    disk_blocks: int = 0
    age_s: float | None = None

    @property
    def reach_blocks(self) -> int:
        """The furthest of the runs."""
        return max(self.confirmed_blocks, self.speculative_blocks, self.host_blocks, self.disk_blocks)


NOTHING = Known()


def known_at(holder: str, ranks: int, match: Match[str]) -> Known:
    """What `match` says of the holder with so many ranks; `NOTHING` itself where it says nothing. O(ranks)."""
    best = _known_of(holder, match)
    for rank in range(1, ranks):
        other = _known_of(cache_name(holder, rank), match)
        if other.reach_blocks > best.reach_blocks:
            best = other
    return best


def reaches(match: Match[str]) -> Mapping[str, int]:
    """How far each holder reaches by any of its runs: `reach_blocks` of what is known there. O(holders)."""
    others = [runs for runs in (match.speculative, match.host, match.disk) if runs]
    if not others:
        return match.blocks
    reach = dict(match.blocks)
    for runs in others:
        for holder, blocks in runs.items():
            if blocks > reach.get(holder, 0):
                reach[holder] = blocks
    return reach


def cache_name(name: str, rank: int) -> str:
    """The name of one rank's cache, of a holder or an endpoint: rank 0 has the name itself."""
    return f"{name}/{rank}" if rank else name


def _known_of(holder: str, match: Match[str]) -> Known:
    confirmed, speculative = match.blocks.get(holder, 0), match.speculative.get(holder, 0)
    host, disk = match.host.get(holder, 0), match.disk.get(holder, 0)
    if not (confirmed or speculative or host or disk):
        return NOTHING
    return Known(holder, confirmed, speculative, host, disk, match.ages_s.get(holder))
