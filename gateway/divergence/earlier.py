"""The last prompts of each key and model, as hashes: which of them a new one continues, or parts from, and where.

    key, model -> [ Earlier, Earlier, ... 8 ]     a prompt that continues one takes its place
                                                  so a key keeps one for each of its last conversations

Bounded in bytes: the prompts of the key that was quiet for longest go first.
"""

from collections.abc import Sequence
from typing import Final

from gateway.divergence.fingerprints import Fingerprint
from gateway.divergence.types import Earlier
from prefix_index import HASH_BYTES, Chain, common_blocks

MOST_PROMPTS: Final = 8
"""Of one key and model."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of all: 8 a block, 80 a message, and `OVERHEAD_BYTES` a prompt."""
OVERHEAD_BYTES: Final = 512
"""What Python needs around a prompt, with its share of a dictionary."""


class RecentPrompts:
    """The last prompts of each key and model. O(prompts of one key) a call, and one binary search in a chain."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._prompts: dict[tuple[str, str], list[Earlier]] = {}

    @property
    def kept_bytes(self) -> int:
        """What all of them take, as counted."""
        return self._bytes

    def continued(self, key_id: str, model: str, chain: Chain) -> Earlier | None:
        """The longest earlier prompt that this one begins with; None where another shares more with it."""
        kept = [one for one in self._prompts.get((key_id, model), ()) if one.block_size == chain.block_size]
        begun = [one for one in kept if chain.hashes.startswith(one.hashes)]
        if not begun:
            return None
        found = max(begun, key=lambda one: len(one.hashes))
        further = len(found.hashes) // HASH_BYTES + 1
        return None if any(_shares(one.hashes, chain.hashes, further) for one in kept) else found

    def closest(
        self, key_id: str, model: str, chain: Chain, parts: Fingerprint | None = None
    ) -> tuple[Earlier, int] | None:
        """The earlier prompt that shares most with this one, and how many blocks that is.

        Of several the one with most parts in common, then the latest.
        """
        kept = [one for one in self._prompts.get((key_id, model), ()) if one.block_size == chain.block_size]
        if not kept:
            return None
        most, best = -1, kept
        for one in kept:
            if most >= 0 and not _shares(one.hashes, chain.hashes, most):
                continue
            shared = common_blocks(one.hashes, chain.hashes)
            if shared > most:
                most, best = shared, [one]
            elif shared == most:
                best.append(one)
        if parts is not None and len(best) > 1:
            best = sorted(best, key=lambda one: _likeness(parts, one.parts))  # stable: the latest stays last
        return best[-1], most

    def keep(self, key_id: str, model: str, new: Earlier) -> None:
        """Remember a prompt; the one that it continues, or repeats, is forgotten."""
        name = key_id, model
        before = self._prompts.pop(name, [])  # put in anew: the key that was quiet for longest comes first
        kept = [one for one in before if not new.hashes.startswith(one.hashes)][1 - MOST_PROMPTS :]
        self._prompts[name] = [*kept, new]
        self._bytes += bytes_of(new) + _sum(kept) - _sum(before)
        while self._bytes > self._most_bytes and self._prompts:
            quietest = next(iter(self._prompts))
            prompts = self._prompts[quietest]
            self._bytes -= bytes_of(prompts.pop(0))
            if not prompts:
                del self._prompts[quietest]


def bytes_of(one: Earlier) -> int:
    """Memory of a prompt, as counted."""
    return len(one.hashes) + one.parts.kept_bytes + OVERHEAD_BYTES


def _sum(prompts: Sequence[Earlier]) -> int:
    return sum(map(bytes_of, prompts))


def _shares(one: bytes, other: bytes, blocks: int) -> bool:
    """Whether two chains share so many blocks at least: each hash names all before it."""
    place = slice((blocks - 1) * HASH_BYTES, blocks * HASH_BYTES)
    return not blocks or (len(one) >= place.stop and one[place] == other[place])


def _likeness(parts: Fingerprint, earlier: Fingerprint) -> int:
    same = (parts.system == earlier.system) + (parts.toolset == earlier.toolset)
    return 2 * same + (parts.hashes[:1] == earlier.hashes[:1])
