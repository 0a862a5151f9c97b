"""How probable a text is to the model: ln p of each of its tokens but the first, given those before.

    tokens    t0   t1   t2   t3         run in parts, each attending to the blocks of those before
    logits    l0   l1   l2   l3
    told         ln p(t1 | t0)   ln p(t2 | t0 t1)   ln p(t3 | t0 t1 t2)

Nothing is read from the prefix cache, as in vLLM, since a cached token runs through no layer and has no logits; blocks
are taken for the while and given back blank. It runs between two steps: whoever else is served waits for all of it.
"""

from collections.abc import Sequence

import torch

from backends.reference.block_pool import BlockPool
from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.errors import RequestRefused

PART_TOKENS = 64
"""At once: of SmolLM2's vocabulary of 49,152 that is 13 MB of logits."""


@torch.inference_mode()
def scored(decoder: PagedDecoder, pool: BlockPool, block_size: int, tokens: Sequence[int]) -> list[float]:
    """One number fewer than tokens. Raises `RequestRefused` (503) while too few blocks are free."""
    needed = -(-len(tokens) // block_size)
    if pool.free_blocks < needed:
        raise RequestRefused("too few blocks of the cache are free to score this prompt; try again", status=503)
    blocks = [pool.allocate() for _ in range(needed)]
    try:
        found: list[float] = []
        for start in range(0, len(tokens), PART_TOKENS):
            part = tokens[start : start + PART_TOKENS]
            logits = decoder.forward([Chunk(part, start, blocks, wants_logits=True, tail=len(part))])
            following = tokens[start + 1 : start + 1 + len(part)]
            told = torch.log_softmax(logits[: len(following)].float(), dim=-1)
            wanted = torch.tensor(following, dtype=torch.int64, device=told.device).unsqueeze(1)
            found += told.gather(1, wanted).squeeze(1).tolist()
        return found
    finally:
        pool.release(blocks)
