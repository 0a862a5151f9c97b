"""Choices that look at no prefix: in turn, by requests outstanding, by chance. Pure.

What they are good for: a baseline that ours is held against, and a plain way to route while ours is only watched.
"""

from collections.abc import Sequence

from gateway.scheduling.types import Candidate


def in_turn(candidates: Sequence[Candidate], turn: int) -> Candidate:
    """The `turn`-th of them, whatever it holds and however busy it is. O(1)."""
    return candidates[turn % len(candidates)]


def least_requests(candidates: Sequence[Candidate], chance: float) -> Candidate:
    """One of those with the fewest requests outstanding, of all replicas. `chance` is uniform in [0, 1). O(n)."""
    fewest = min(candidate.queued_requests for candidate in candidates)
    return at_random([candidate for candidate in candidates if candidate.queued_requests == fewest], chance)


def at_random(candidates: Sequence[Candidate], chance: float) -> Candidate:
    """Any of them. `chance` is uniform in [0, 1). O(1)."""
    return candidates[int(chance * len(candidates))]
