"""What a router believes each endpoint has cached: as KV events tell, or as it remembers what it sent there.

Precise       view.cached_blocks, endpoint by endpoint
Approximate   its own radix index: a prompt that was sent is held, until that endpoint's LRU lets it go
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.sim.types import SimRequest, View
from prefix_index import HASH_BYTES, Chain, RadixIndex

_MAX_HOLDS = 1 << 18
"""Nodes remembered in all, about 1 KB each; a thousand endpoints may have 262 each."""


class Prefixes(Protocol):
    """Leading runs of a chain by endpoint."""

    def looked_at(self, chain: Chain) -> Chain:
        """The part of the chain that this router looks at: all of it, or a bounded beginning."""
        ...

    def runs(self, chain: Chain, view: View) -> Sequence[int]:
        """Blocks of `chain` believed cached, by endpoint number; 0 at those that are dead and known to be so."""
        ...


class Precise:
    """What the endpoints hold indeed."""

    def looked_at(self, chain: Chain) -> Chain:
        """All of it."""
        return chain

    def runs(self, chain: Chain, view: View) -> Sequence[int]:
        """One question an endpoint."""
        return [view.cached_blocks(each.number, chain) if each.alive else 0 for each in view.endpoints]


class Approximate:
    """What was sent where: a memory of the policy, with an LRU of `capacity_blocks` for each endpoint.

    Nobody tells such a router of a restart, so what was sent before it is believed until the LRU has turned over.
    `most_tokens` bounds the beginning of each prompt that is looked at (None: all of it). Ours lets go of tails first,
    which is kinder than an LRU over single blocks.
    """

    def __init__(self, capacity_blocks: int, most_tokens: int | None = None) -> None:
        self._index: RadixIndex[int] = RadixIndex(capacity_blocks=max(1, capacity_blocks), max_holds=_MAX_HOLDS)
        self._most_tokens = most_tokens

    def looked_at(self, chain: Chain) -> Chain:
        """Its beginning, of whole blocks."""
        if self._most_tokens is None or chain.prompt_tokens <= self._most_tokens:
            return chain
        blocks = self._most_tokens // chain.block_size
        return Chain(chain.hashes[: blocks * HASH_BYTES], chain.block_size, self._most_tokens)

    def runs(self, chain: Chain, view: View) -> Sequence[int]:
        """One match for all endpoints."""
        found = self._index.match(chain).blocks
        return [found.get(number, 0) for number in range(len(view.endpoints))]

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """It will have that prompt."""
        self._index.observe(endpoint, self.looked_at(request.chain))

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Nothing: the report is not read."""

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Nothing: its blocks stay."""

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Nothing: nobody told."""
