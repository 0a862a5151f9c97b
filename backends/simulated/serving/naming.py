"""Names of the blocks of a prompt: equal where, and only where, the engine would find them in its cache.

Engines with blocks: the name of block i is a hash of everything up to it and of its namespace (salt, adapter), so that
a prompt finds what any other left there. Engines with slots: a slot remembers one sequence, and what a prompt shares
with it; past that its names are fresh, so that nobody ever finds what was overwritten.
"""

import secrets
import struct
from collections.abc import Sequence

from xxhash import xxh3_64

from backends.simulated.kv_cache import BLOCK_NAME_BYTES
from backends.simulated.serving.words import id_bytes

TOKEN_BYTES = 4
SIMILAR_ENOUGH = 0.1
"""llama.cpp's `--slot-prompt-similarity`: below this share of a prompt, a slot's sequence counts as another one."""


def block_names(ids: Sequence[int], block_size: int, namespace: str) -> bytes:
    """8 bytes a whole block. O(tokens), about 0.3 µs a block."""
    data = id_bytes(ids)
    step = block_size * TOKEN_BYTES
    running = xxh3_64(namespace.encode())
    names = []
    for start in range(0, len(ids) // block_size * step, step):
        running.update(data[start : start + step])
        names.append(running.intdigest())
    return struct.pack(f"={len(names)}Q", *names)


class Slots:
    """The slots of one engine: what each remembers, which are busy, and which is taken next."""

    def __init__(self, count: int) -> None:
        self._ids: list[tuple[int, ...]] = [()] * count
        self._names: list[bytes] = [b""] * count
        self._used: list[int] = [0] * count
        self._busy: set[int] = set()
        self._turn = 0

    def take(self, ids: tuple[int, ...], more: int, wanted: int | None = None) -> tuple[int, bytes] | None:
        """A slot for a prompt, and the names of its tokens there and of so many more; None while there is none.

        The idle slot that shares most of the prompt, if it is enough; else the one that was idle for longest.
        """
        idle = [slot for slot in range(len(self._ids)) if slot not in self._busy and wanted in (None, slot)]
        if not idle:
            return None
        slot = max(idle, key=lambda one: _shared(self._ids[one], ids))
        if _shared(self._ids[slot], ids) <= SIMILAR_ENOUGH * len(ids):
            slot = min(idle, key=lambda one: self._used[one])
        shared = _shared(self._ids[slot], ids)
        fresh = secrets.token_bytes((len(ids) + more - shared) * BLOCK_NAME_BYTES)
        names = self._names[slot][: shared * BLOCK_NAME_BYTES] + fresh
        self._turn += 1
        self._used[slot] = self._turn
        self._ids[slot], self._names[slot] = ids, names
        self._busy.add(slot)
        return slot, names

    def give_back(self, slot: int, answer: tuple[int, ...]) -> None:
        """Its request has ended; what it remembers is the prompt and the answer."""
        self._ids[slot] += answer
        self._busy.discard(slot)


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens two sequences have in common."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))
