"""The shared index as the replicas of a run see it: one structure, and writes that arrive late.

    replica 0 ─observe, forget, clear─> on their way ──delay_s──> the index, which all replicas see
                    └── what is on its way is laid over it for the writer alone: its own writes it sees at once
    loads: own at once; what the others have outstanding as of their last publication

So it is in Redis, where a replica reads its own writes by the same rule (`with_pending`), and those of others after a
round trip. One index for all makes ten replicas as cheap as one; with one replica there is no delay, and no rule.

Costs: a write as in `RadixIndex`, once, however many replicas there are; a match also looks at the replica's own writes
of the last `delay_s`. Loads: a copy of the sums a match, and O(changed) a publication.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prefix_index import Chain, Claim, Load, Match, RadixIndex
from prefix_index.pending import MOST_PENDING, with_pending
from prefix_index.radix import SPECULATIVE_S
from prefix_index.write_queue import Write

NOBODY = Load()

Change = Callable[[RadixIndex[str]], object]


class _Shared:
    """What all replicas of a run see: the index as of now, what is on its way to it, and the loads published."""

    def __init__(self, speculative_s: float) -> None:
        self.now_s = 0.0
        self.index: RadixIndex[str] = RadixIndex(clock=lambda: self.now_s, speculative_s=speculative_s)
        self.loads: dict[str, Load] = {}
        self._coming: deque[tuple[float, Change]] = deque()

    def comes(self, at_s: float, change: Change) -> None:
        self._coming.append((at_s, change))

    def at(self, now_s: float) -> RadixIndex[str]:
        """The index, with everything in it that has arrived by now."""
        coming = self._coming
        while coming and coming[0][0] <= now_s:
            self.now_s, change = coming.popleft()
            change(self.index)
        self.now_s = now_s
        return self.index


@dataclass(slots=True)
class ReplicaIndex:
    """One replica's view of the index, and what it knows of loads. Give the peers with `share`, before the first write.

    `now_s` never goes back, in none of the peers.
    """

    delay_s: float = 0.0
    load_interval_s: float = 0.0
    speculative_s: float = SPECULATIVE_S
    now_s: float = 0.0
    _shared: _Shared = field(init=False)
    _peers: Sequence["ReplicaIndex"] = ()
    _on_their_way: deque[tuple[float, Write]] = field(default_factory=deque)
    _here: deque[Write] = field(default_factory=lambda: deque(maxlen=MOST_PENDING))
    _own: dict[str, Load] = field(default_factory=dict)
    _published: dict[str, Load] = field(default_factory=dict)
    _unpublished: set[str] = field(default_factory=set)
    _published_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._shared = _Shared(self.speculative_s)

    def share(self, peers: Sequence["ReplicaIndex"]) -> None:
        """Write to the same index as these; itself may be among them."""
        self._shared = peers[0]._shared
        self._peers = [peer for peer in peers if peer is not self]

    def match(self, chain: Chain, now_s: float) -> Match[str]:
        """What this replica knows at that time."""
        self.now_s = now_s
        match = self._shared.at(now_s).match(chain)
        own = self._on_their_way
        while own and own[0][0] <= now_s:
            own.popleft()
        if own or self._here:
            match = with_pending(match, chain, [*self._here, *(write for _, write in own)])
        return replace(match, loads=self._loads() if self._peers else self._own)

    def observe(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """The holder has all of the chain."""
        self._write(_observed(holder, chain, claim), lambda index: index.observe(holder, chain, claim))

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None:
        """The holder has nothing from this block on."""
        write = _forgotten(holder, chain, from_block, claim)
        self._write(write, lambda index: index.forget(holder, chain, from_block, claim))

    def observe_here(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """For this replica alone, as long as it is among the latest of these."""
        self._here.append(_observed(holder, chain, claim))

    def forget_here(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None:
        """The same for what was lost."""
        self._here.append(_forgotten(holder, chain, from_block, claim))

    def clear(self, holder: str, /) -> None:
        """The holder has nothing."""
        self._write(Write(holder, None, ending=True), lambda index: index.clear(holder))

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks the holder keeps; every replica knows by itself."""
        self._shared.index.set_capacity(holder, blocks)

    def set_load(self, endpoint_id: str, load: Load) -> None:
        """What this replica has outstanding there."""
        if load == NOBODY:
            self._own.pop(endpoint_id, None)
        else:
            self._own[endpoint_id] = load
        self._unpublished.add(endpoint_id)

    def publish(self, now_s: float) -> None:
        """Show the others what changed, if it is time again."""
        if now_s - self._published_s < self.load_interval_s:
            return
        self._published_s = now_s
        self._correct(self._shared.loads)
        for endpoint_id in self._unpublished:
            self._published[endpoint_id] = self._own.get(endpoint_id, NOBODY)
        self._unpublished.clear()

    def _loads(self) -> dict[str, Load]:
        for peer in self._peers:
            peer.publish(self.now_s)
        total = dict(self._shared.loads)
        self._correct(total)
        return total

    def _correct(self, total: dict[str, Load]) -> None:
        """Put what is outstanding now in the place of what was published."""
        for endpoint_id in self._unpublished:
            was, own = self._published.get(endpoint_id, NOBODY), self._own.get(endpoint_id, NOBODY)
            sums = total.get(endpoint_id, NOBODY)
            load = Load(
                sums.requests - was.requests + own.requests,
                sums.uncached_tokens - was.uncached_tokens + own.uncached_tokens,
                sums.decode_tokens - was.decode_tokens + own.decode_tokens,
            )
            if load == NOBODY:
                total.pop(endpoint_id, None)
            else:
                total[endpoint_id] = load

    def _write(self, write: Write, change: Change) -> None:
        if not self._peers:
            change(self._shared.at(self.now_s))
            return
        at_s = self.now_s + self.delay_s
        self._on_their_way.append((at_s, write))
        self._shared.comes(at_s, change)


def _observed(holder: str, chain: Chain, claim: Claim) -> Write:
    return Write(holder, claim, chain)


def _forgotten(holder: str, chain: Chain, from_block: int, claim: Claim) -> Write:
    return Write(holder, claim, chain, from_block)
