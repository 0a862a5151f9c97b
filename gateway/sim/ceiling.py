"""What no policy can beat: the hit share of one cache that keeps everything and is never late.

    known blocks  <──all of a prompt──  its leading run that is known already is what could have been cached

A block's name stands for all before it, so the leading run is found by halving. An engine computes the last token of a
prompt always; the block that it ends in never counts.
"""

from dataclasses import dataclass

from gateway.sim.types import Workload

MOST_BLOCKS = 8_000_000
"""Distinct blocks that are kept before the ceiling is given up as unknown: about 100 bytes each."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """`hit_share` from 0 to 1; None of a load without tokens, or with more distinct blocks than are kept."""

    hit_share: float | None
    prompt_tokens: int


def ceiling_of(workload: Workload, most_blocks: int = MOST_BLOCKS, *, skip_s: float = 0.0) -> Ceiling:
    """Reads the load once; its first `skip_s` seconds are a warm-up. O(blocks) time at the speed of a set, O(distinct
    blocks) memory."""
    known: set[int] = set()
    cached = prompt = 0
    from_s: float | None = None
    for request in workload.requests:
        from_s = request.at_s + skip_s if from_s is None else from_s
        names = memoryview(request.chain.hashes).cast("Q")
        run = _leading_run(known, names)
        if request.at_s >= from_s:
            prompt += request.prompt_tokens
            cached += min(run, (request.prompt_tokens - 1) // workload.block_size) * workload.block_size
        known.update(names[run:])
        if len(known) > most_blocks:
            return Ceiling(None, prompt)
    return Ceiling(cached / prompt if prompt else None, prompt)


def _leading_run(known: set[int], names: memoryview) -> int:
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if names[middle] in known:
            low = middle + 1
        else:
            high = middle
    return low
