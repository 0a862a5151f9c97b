"""The shared index as the replicas of a run see it: one structure, and writes that arrive late.

    replica 0 ─observe, forget, clear─> own writes at once ──delay_s──> the others
    loads: own at once; what the others have outstanding as of their last publication

In Redis a replica reads its own writes (`pending`), and those of others after a round trip. Here each replica has a
copy, a `RadixIndex` as the server's stand-in is, and writes are played into the other copies when their time has come;
with one replica there is one copy and no delay.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prefix_index import Chain, Claim, Load, Match, RadixIndex

NOBODY = Load()


@dataclass(slots=True)
class ReplicaIndex:
    """One replica's copy of the index, and what it knows of loads. Give the peers with `share`."""

    delay_s: float = 0.0
    load_interval_s: float = 0.0
    speculative_s: float = 60.0
    now_s: float = 0.0
    index: RadixIndex[str] = field(init=False)
    _peers: Sequence["ReplicaIndex"] = ()
    _coming: deque[tuple[float, Callable[[RadixIndex[str]], object]]] = field(default_factory=deque)
    _own: dict[str, Load] = field(default_factory=dict)
    _published: dict[str, Load] = field(default_factory=dict)
    _published_s: float = float("-inf")

    def __post_init__(self) -> None:
        self.index = RadixIndex(clock=lambda: self.now_s, speculative_s=self.speculative_s)

    def share(self, peers: Sequence["ReplicaIndex"]) -> None:
        """Write to these too; itself may be among them."""
        self._peers = [peer for peer in peers if peer is not self]

    def match(self, chain: Chain, now_s: float) -> Match[str]:
        """What this replica knows at that time."""
        self.now_s = now_s
        coming = self._coming
        while coming and coming[0][0] <= now_s:
            coming.popleft()[1](self.index)
        match = self.index.match(chain)
        return replace(match, loads=self._loads() if self._peers else self._own)

    def observe(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """The holder has all of the chain."""
        self._write(lambda index: index.observe(holder, chain, claim))

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None:
        """The holder has nothing from this block on."""
        self._write(lambda index: index.forget(holder, chain, from_block, claim))

    def observe_here(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """For this replica's copy alone."""
        self.index.observe(holder, chain, claim)

    def forget_here(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None:
        """The same for what was lost."""
        self.index.forget(holder, chain, from_block, claim)

    def clear(self, holder: str, /) -> None:
        """The holder has nothing."""
        self._write(lambda index: index.clear(holder))

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks the holder keeps; every replica knows by itself."""
        self.index.set_capacity(holder, blocks)

    def set_load(self, endpoint_id: str, load: Load) -> None:
        """What this replica has outstanding there."""
        if load == NOBODY:
            self._own.pop(endpoint_id, None)
        else:
            self._own[endpoint_id] = load

    def published(self, now_s: float) -> dict[str, Load]:
        """What the others see of this replica's loads."""
        if now_s - self._published_s >= self.load_interval_s:
            self._published, self._published_s = dict(self._own), now_s
        return self._published

    def _loads(self) -> dict[str, Load]:
        total = dict(self._own)
        for peer in self._peers:
            for endpoint_id, load in peer.published(self.now_s).items():
                own = total.get(endpoint_id)
                total[endpoint_id] = load if own is None else own + load
        return total

    def _write(self, change: Callable[[RadixIndex[str]], object]) -> None:
        change(self.index)
        for peer in self._peers:
            peer.arrive(self.now_s + self.delay_s, change)

    def arrive(self, at_s: float, change: Callable[[RadixIndex[str]], object]) -> None:
        """Somebody else's write, seen from `at_s` on."""
        self._coming.append((at_s, change))
