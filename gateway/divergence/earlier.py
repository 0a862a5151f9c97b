"""The last prompts of each key and model, as hashes: which of them a new one continues, or parts from, and where.

    key, model -> [ Earlier, Earlier, ... 8 ]     a prompt that continues one takes its place
                                                  so a key keeps one for each of its last conversations

Bounded in bytes: the prompts of the key that was quiet for longest go first.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.divergence.fingerprints import Fingerprint
from gateway.divergence.types import Earlier
from prefix_index import HASH_BYTES, Chain, common_blocks

MOST_PROMPTS: Final = 8
"""Of one key and model."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of all: 8 a block, 80 a message, and `OVERHEAD_BYTES` a prompt."""
OVERHEAD_BYTES: Final = 672
"""What Python needs around a prompt, with its share of a dictionary."""


class RecentPrompts:
    """The last prompts of each key and model. O(prompts of one key) a call, and mostly one binary search in a chain."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._prompts: dict[tuple[str, str], list[Earlier]] = {}

    @property
    def kept_bytes(self) -> int:
        """What all of them take, as counted."""
        return self._bytes

    def closest(
        self, key_id: str, model: str, chain: Chain, parts: Callable[[], Fingerprint] | None = None
    ) -> tuple[Earlier, int] | None:
        """The earlier prompt that shares most with this one, and how many blocks that is.

        Of several one that this continues, else one with the same system prompt, else with the same tools, else the
        latest; `parts` are asked for where that is to be decided.
        """
        most, best, hashes = 0, list[Earlier](), chain.hashes
        here, further = b"", hashes[:HASH_BYTES]  # what names the first `most` blocks, and one more
        end = 0
        for one in reversed(self._prompts.get((key_id, model), ())):
            if one.block_size != chain.block_size:
                continue
            other = one.hashes
            if further and other[end : end + HASH_BYTES] == further:
                most = len(other) // HASH_BYTES if hashes.startswith(other) else common_blocks(other, hashes)
                best = [one]
                end = most * HASH_BYTES
                here, further = hashes[end - HASH_BYTES : end], hashes[end : end + HASH_BYTES]
            elif not end or other[end - HASH_BYTES : end] == here:
                best.append(one)
        if not best:
            return None
        if len(best) == 1 or parts is None:
            return best[0], most
        for one in best:
            if len(one.hashes) == end:
                return one, most
        has_head = 0 < best[0].parts.head_tokens <= most * chain.block_size
        return (best[0] if has_head else _likest(best, parts())), most

    def keep(self, key_id: str, model: str, new: Earlier) -> None:
        """Remember a prompt; the one that it continues, or repeats, is forgotten."""
        name = key_id, model
        before = self._prompts.pop(name, [])  # put in anew: the key that was quiet for longest comes first
        begins_with, kept = new.hashes.startswith, []
        for one in before:
            if begins_with(one.hashes):
                self._bytes -= bytes_of(one)
            else:
                kept.append(one)
        if len(kept) == MOST_PROMPTS:
            self._bytes -= bytes_of(kept.pop(0))
        kept.append(new)
        self._prompts[name] = kept
        self._bytes += bytes_of(new)
        while self._bytes > self._most_bytes and self._prompts:
            quietest = next(iter(self._prompts))
            prompts = self._prompts[quietest]
            self._bytes -= bytes_of(prompts.pop(0))
            if not prompts:
                del self._prompts[quietest]


def bytes_of(one: Earlier) -> int:
    """Memory of a prompt, as counted."""
    return len(one.hashes) + 80 * len(one.parts.hashes) + OVERHEAD_BYTES


def _likest(best: Sequence[Earlier], parts: Fingerprint) -> Earlier:
    system, toolset = parts.system, parts.toolset
    for one in best:
        if one.parts.system == system and one.parts.toolset == toolset:
            return one
    for one in best:
        if one.parts.toolset == toolset:
            return one
    return best[0]
