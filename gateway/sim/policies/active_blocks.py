"""Distinct prompt blocks of the requests that are on an endpoint now: what Dynamo counts as its decode load.

    chains in order of their bytes     a b c      new blocks of a b x: 3 − the longest prefix it shares with a
                                       a b d      neighbour in that order, so 1; all of them: 3 + 1
                                       q          + 1 = 5

Chains that share a prefix are side by side in that order, so neighbours tell all: O(log requests · log blocks).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field

from gateway.sim.types import SimRequest


@dataclass(slots=True)
class _Active:
    chains: list[bytes] = field(default_factory=list)
    blocks: int = 0

    def new_blocks(self, hashes: bytes, at: int) -> int:
        """Blocks of a chain that no neighbour of place `at` shares."""
        shared = 0
        if at > 0:
            shared = _common(self.chains[at - 1], hashes)
        if at < len(self.chains):
            shared = max(shared, _common(self.chains[at], hashes))
        return len(hashes) // 8 - shared


class ActiveBlocks:
    """Distinct blocks in use, by endpoint."""

    def __init__(self) -> None:
        self._by_endpoint: defaultdict[int, _Active] = defaultdict(_Active)

    def with_request(self, request: SimRequest, endpoint: int) -> int:
        """Distinct blocks in use there if the request came too."""
        active = self._by_endpoint[endpoint]
        hashes = request.chain.hashes
        return active.blocks + active.new_blocks(hashes, bisect_left(active.chains, hashes))

    def blocks(self, endpoint: int) -> int:
        """Distinct blocks in use there."""
        return self._by_endpoint[endpoint].blocks

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Its prompt is in use from dispatch on."""
        active = self._by_endpoint[endpoint]
        active.blocks = self.with_request(request, endpoint)
        insort(active.chains, request.chain.hashes)

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Nothing: the answer needs the blocks of the prompt."""

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """What nobody else uses is no longer in use."""
        active = self._by_endpoint[endpoint]
        at = bisect_left(active.chains, request.chain.hashes)
        del active.chains[at]
        active.blocks -= active.new_blocks(request.chain.hashes, at)

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Nothing: what was lost is said to have ended, one by one."""


def _common(left: bytes, right: bytes) -> int:
    """Leading blocks that two chains share; one hash equal means all before it."""
    high = min(len(left), len(right))
    if left[:high] == right[:high]:
        return high // 8
    if left[:8] != right[:8]:
        return 0
    ours, theirs = memoryview(left).cast("Q"), memoryview(right).cast("Q")
    low, high = 1, high // 8
    while high - low > 1:
        middle = (low + high) // 2
        if ours[middle - 1] == theirs[middle - 1]:
            low = middle
        else:
            high = middle
    return low
