"""What a KV cache reserves and never fills: counted, step by step, over the engine's own scheduler and block pool.

    contiguous   room for the longest request there may be       [ t t t t . . . . . . . . . . . . ]
    paged        blocks as tokens come                           [ t t t t | t . . . ]

Contiguous is paged in blocks as long as the longest request: one block each. No model runs, lengths are all that
counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.reference.block_pool import BlockPool
from backends.reference.lab.loop import Work, run
from backends.reference.scheduler import Scheduler, Slice

_ANY_TOKEN = 0


@dataclass(frozen=True, slots=True)
class Reserved:
    """Means over all steps: the share of reserved tokens that held none, and how many requests ran at a time."""

    wasted: float
    running: float
    steps: int


def reserved(load: Sequence[Work], *, capacity_tokens: int, block_size: int, at_once: int) -> Reserved:
    """Serve `load` from `capacity_tokens` of cache in blocks of `block_size`, at most `at_once` requests at a time.

    ValueError where a request of the load does not fit the cache.
    """
    blocks = capacity_tokens // block_size
    if any(-(-(len(work.prompt) + work.output_tokens) // block_size) > blocks for work in load):
        raise ValueError(f"a request does not fit {blocks} blocks of {block_size} tokens")
    pool = BlockPool(blocks)
    scheduler = Scheduler(pool, block_size=block_size, max_num_seqs=at_once, max_batched_tokens=1 << 30)
    wasted = 0.0
    running = steps = 0

    def count(slices: Sequence[Slice]) -> Sequence[int]:
        nonlocal wasted, running, steps
        filled = sum(one.end for one in slices)
        wasted += 1 - filled / (pool.held_blocks * block_size)
        running += len(slices)
        steps += 1
        return [_ANY_TOKEN] * sum(one.is_complete for one in slices)

    run(scheduler, count, load, lambda: 0.0, block_size)
    return Reserved(wasted / steps, running / steps, steps)
