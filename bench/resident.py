"""Do the caches stay within their bounds? Resident memory while a million unique prompts go through them.

In a process of its own for each cache: memory that something else has given back would hide what a cache takes.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from prefix_index.chain_memo import SPAN_BLOCKS, ChainMemo
from prefix_index.segment_cache import SegmentCache
from prefix_index.types import TOKEN_BYTES, TokenIds

CACHES: Final = ("SegmentCache", "ChainMemo")
BOUND_BYTES: Final = 16 * 1024 * 1024
BLOCK_SIZE: Final = 16
_PROMPT_BYTES = 200
_BYTES_PER_TOKEN = 4
_LOOK_EACH = 5_000


@dataclass(frozen=True, slots=True)
class Growth:
    """How far resident memory grew at most; `entries` are those kept at the end."""

    cache: str
    prompts: int
    bound_bytes: int
    grown_bytes: int
    entries: int

    def row(self) -> dict[str, object]:
        """For the result file."""
        return asdict(self)


def growth_alone(cache: str, prompts: int) -> Growth:
    """`growth_of` in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(growth_of, cache, prompts).result()


def growth_of(cache: str, prompts: int) -> Growth:
    """Send `prompts` unique prompts through a cache of `BOUND_BYTES` and watch. Some 4 s for a million."""
    return _segments(prompts) if cache == "SegmentCache" else _chains(prompts)


def _segments(prompts: int) -> Growth:
    """Prompts of some 200 bytes, a token for each four."""
    cache = SegmentCache(BOUND_BYTES)

    def send(number: int) -> None:
        prompt = b"%d of many prompts " % number + b"." * (_PROMPT_BYTES // 2 + number % _PROMPT_BYTES)
        key = cache.key_of(prompt)
        if cache.get(key) is None:
            cache.put(key, TokenIds(bytes(len(prompt) // _BYTES_PER_TOKEN * TOKEN_BYTES)))

    return Growth("SegmentCache", prompts, BOUND_BYTES, _most_growth(send, prompts), len(cache))


def _chains(prompts: int) -> Growth:
    """Prompts of one span each: shorter ones are not kept at all."""
    memo = ChainMemo(BOUND_BYTES)

    def send(number: int) -> None:
        tokens = number.to_bytes(TOKEN_BYTES, "little") * (SPAN_BLOCKS * BLOCK_SIZE)
        memo.chain_of(TokenIds(tokens), b"root", BLOCK_SIZE)

    return Growth("ChainMemo", prompts, BOUND_BYTES, _most_growth(send, prompts), len(memo))


def _most_growth(send: Callable[[int], None], prompts: int) -> int:
    before, most = _resident_bytes(), 0
    for number in range(prompts):
        send(number)
        if number % _LOOK_EACH == 0 or number == prompts - 1:
            most = max(most, _resident_bytes() - before)
    return most


def _resident_bytes() -> int:
    """Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
