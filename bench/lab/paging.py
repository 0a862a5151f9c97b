"""Paged against contiguous KV: what is reserved and never filled, and what reading through a block table costs."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.lab.contiguous import ContiguousDecoder
from backends.reference.lab.loop import Decoder
from backends.reference.lab.reservation import reserved
from bench.lab.lengths import sharegpt_like
from bench.lab.turns import median_of_turns
from bench.lab.types import Lab, Row, number
from bench.result import Goal

REQUESTS: Final = 300
LONGEST: Final = 2048
CAPACITY: Final = 8 * LONGEST
AT_ONCE: Final = 256
BLOCKS: Final = (256, 64, 16, 1)
CONTEXT: Final = 512
_STEPS: Final = 8
_UNUSUAL: Final = 7
"""No stride of the cache's own: blocks of a request lie apart in it."""


def measure(lab: Lab) -> Iterable[Row]:
    """One row a size of block; the first is contiguous, a block as long as the longest request."""
    load = sharegpt_like(REQUESTS, share=1.0, longest=LONGEST)
    sizes = (LONGEST, *BLOCKS)
    decoders: list[Callable[[], float]] = [partial(_seconds, lab, *_decoding(lab, size)) for size in sizes]
    for size, token_s in zip(sizes, median_of_turns(lab.rounds, *decoders), strict=True):
        found = reserved(load, capacity_tokens=CAPACITY, block_size=size, at_once=AT_ONCE)
        yield Row(
            f"contiguous, {LONGEST} tokens each" if size == LONGEST else f"blocks of {size}",
            {
                "reserved and empty": f"{found.wasted:.1%}",
                "requests at a time": found.running,
                "steps for all": found.steps,
                f"decode ms/token at {CONTEXT} tokens": 1e3 * token_s,
            },
        )


def _decoding(lab: Lab, size: int) -> tuple[Decoder, tuple[int, ...]]:
    """A decoder that has computed a prompt of `CONTEXT` tokens, and where it lies."""
    longest = CONTEXT + _STEPS
    tokens = range(1000, 1000 + CONTEXT)
    if size == LONGEST:
        decoder: Decoder = ContiguousDecoder(lab.weights, slots=1, max_positions=longest)
        table: tuple[int, ...] = (0,)
    else:
        blocks = -(-longest // size)
        count = blocks if blocks % _UNUSUAL else blocks + 1
        decoder = PagedDecoder(lab.weights, kv_blocks=count, block_size=size, max_positions=longest)
        table = tuple(_UNUSUAL * at % count for at in range(blocks))
    decoder.forward([Chunk(tokens, 0, table, wants_logits=False)])
    return decoder, table


def _seconds(lab: Lab, decoder: Decoder, table: tuple[int, ...]) -> float:
    """Of one decoding step, the mean of a few."""
    began_s = lab.clock()
    for at in range(CONTEXT, CONTEXT + _STEPS):
        decoder.forward([Chunk((at,), at, table, wants_logits=True)]).argmax(-1).tolist()
    return (lab.clock() - began_s) / _STEPS


def goals(rows: list[Row]) -> Iterable[Goal]:
    """Blocks of 16 leave a twentieth of the cache empty at most, and reading through them costs a quarter at most."""
    contiguous, small = rows[0].figures, next(row.figures for row in rows if row.technique == "blocks of 16")
    wasted = float(str(small["reserved and empty"]).rstrip("%"))
    yield Goal("blocks of 16: % of the cache reserved and empty", wasted, 5, "<=")
    name = f"decode ms/token at {CONTEXT} tokens"
    times = number(small[name]) / number(contiguous[name])
    yield Goal("blocks of 16: time of a decoding step, times contiguous", times, 1.25, "<=")
