"""Distinct prompt blocks of the requests that are on an endpoint now: what Dynamo counts as its decode load.

    chains in order of their bytes     a b c      new blocks of a b x: 3 − the longest prefix it shares with a
                                       a b d      neighbour in that order, so 1; all of them: 3 + 1
                                       q          + 1 = 5

Chains that share a prefix are side by side in that order, so neighbours tell all: O(log requests · log blocks).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.sim.types import SimRequest


@dataclass(slots=True)
class _Active:
    """`words` are the chains of `chains` once more, as numbers of 8 bytes: quick to compare at any place."""

    chains: list[bytes] = field(default_factory=list)
    words: list[memoryview] = field(default_factory=list)
    blocks: int = 0

    def new_blocks(self, words: memoryview, at: int) -> int:
        """Blocks of a chain that no neighbour of place `at` shares."""
        shared = _common(self.words[at - 1], words) if at else 0
        if at < len(self.words):
            shared = max(shared, _common(self.words[at], words))
        return len(words) - shared


class ActiveBlocks:
    """Distinct blocks in use, by endpoint."""

    def __init__(self) -> None:
        self._by_endpoint: defaultdict[int, _Active] = defaultdict(_Active)

    def with_request(self, request: SimRequest, endpoints: Iterable[int]) -> list[int]:
        """Distinct blocks in use at each of these endpoints if the request came there too."""
        hashes = request.chain.hashes
        words = memoryview(hashes).cast("Q")
        projected = []
        for endpoint in endpoints:
            active = self._by_endpoint[endpoint]
            chains = active.chains
            new = active.new_blocks(words, bisect_left(chains, hashes)) if chains else len(words)
            projected.append(active.blocks + new)
        return projected

    def blocks(self, endpoint: int) -> int:
        """Distinct blocks in use there."""
        return self._by_endpoint[endpoint].blocks

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Its prompt is in use from dispatch on."""
        active, hashes = self._by_endpoint[endpoint], request.chain.hashes
        at, words = bisect_left(active.chains, hashes), memoryview(hashes).cast("Q")
        active.blocks += active.new_blocks(words, at)
        active.chains.insert(at, hashes)
        active.words.insert(at, words)

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Nothing: the answer needs the blocks of the prompt."""

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """What nobody else uses is no longer in use."""
        active = self._by_endpoint[endpoint]
        at = bisect_left(active.chains, request.chain.hashes)
        del active.chains[at]
        active.blocks -= active.new_blocks(active.words.pop(at), at)

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Nothing: what was lost is said to have ended, one by one."""


def _common(left: memoryview, right: memoryview) -> int:
    """Leading blocks that two chains share; one hash equal means all before it."""
    high = min(len(left), len(right))
    if not high or left[0] != right[0]:
        return 0
    if left[high - 1] == right[high - 1]:
        return high
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle
    return low
