"""Prefill and decode on engines of their own: who writes an answer whose prompt is computed.

    policy ──> prefill engine ──first token, end──> DecodePool.take ──> decode engine ──> first token, end
                                                       fewest there       blocks are transferred first

As vLLM with NIXL does it: the prefill engine is asked for one token, which nobody sees; the whole request goes to a
decode engine then, which fetches the blocks, and whose first token is the client's. So the time to first token has the
transfer and the decode engine's queue in it. Cached tokens are those that the prefill engine reports, and a policy,
which chooses prefill engines alone, is told of its first token and its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.simulated import EngineSpec, Role


@dataclass(slots=True)
class DecodePool:
    """The decode engines of a fleet by number, and how many answers each is writing. Choosing is O(engines)."""

    in_flight: dict[int, int]
    _dead: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, specs: Sequence[EngineSpec]) -> "DecodePool":
        """Those of a fleet; it may have none."""
        return cls({number: 0 for number, spec in enumerate(specs) if spec.role is Role.DECODE})

    def __contains__(self, number: int) -> bool:
        return number in self.in_flight

    def take(self) -> int | None:
        """The one that writes fewest answers, of equals the first, writes one more now; None where none is alive."""
        able = [number for number in self.in_flight if number not in self._dead]
        if not able:
            return None
        number = min(able, key=self.in_flight.__getitem__)
        self.in_flight[number] += 1
        return number

    def ended(self, number: int) -> None:
        """An answer has ended there, whole or not."""
        self.in_flight[number] -= 1

    def live(self, number: int, alive: bool) -> None:
        """A decode engine came or went."""
        (self._dead.discard if alive else self._dead.add)(number)
