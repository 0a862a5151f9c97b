"""Static against continuous batching, and chunked prefill, on a load of very different lengths."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import mean, median
from typing import Final

from backends.reference.block_pool import BlockPool
from backends.reference.decoder import PagedDecoder
from backends.reference.lab.contiguous import ContiguousDecoder
from backends.reference.lab.loop import Batcher, Decoder, Served, Work, greedily, run
from backends.reference.lab.static_batches import StaticBatches
from backends.reference.scheduler import Scheduler
from bench.lab.lengths import sharegpt_like
from bench.lab.turns import median_figures
from bench.lab.types import Lab, Row, number
from bench.result import Goal

REQUESTS: Final = 24
SHARE: Final = 0.1
LONGEST: Final = 256
SLOTS: Final = 8
"""Of `LONGEST` tokens each: the cache that every way to batch gets, whether it has slots or blocks."""
BLOCK: Final = 16
AT_ONCE: Final = 32
STEP_TOKENS: Final = 512

DECODING: Final = 4
DECODED: Final = 24
LONG_PROMPT: Final = 768
ARRIVES_AT: Final = 6
BUDGETS: Final = (2048, 256, 64)

Make = Callable[[], tuple[Batcher, Decoder, int]]
"""What serves a load, with the size of its blocks, new for each run."""


def measure(lab: Lab) -> Iterable[Row]:
    """One row a way to batch: all requests are there from the beginning, the cache is as large for each."""
    load = sharegpt_like(REQUESTS, share=SHARE, longest=LONGEST)
    ways = {
        f"static, batches of {SLOTS}": partial(_slots, lab, static=True),
        f"continuous, {SLOTS} slots of {LONGEST} tokens": partial(_slots, lab, static=False),
        f"continuous, blocks of {BLOCK} tokens": partial(_blocks, lab),
    }
    runs = [partial(_throughput, lab, make, load) for make in ways.values()]
    for name, figures in zip(ways, median_figures(min(lab.rounds, 3), runs), strict=True):
        yield Row(name, figures)


def _slots(lab: Lab, *, static: bool) -> tuple[Batcher, Decoder, int]:
    scheduler = _scheduler(SLOTS, LONGEST, STEP_TOKENS)
    decoder = ContiguousDecoder(lab.weights, slots=SLOTS, max_positions=LONGEST)
    return (StaticBatches(scheduler, SLOTS) if static else scheduler), decoder, LONGEST


def _blocks(lab: Lab) -> tuple[Batcher, Decoder, int]:
    blocks = SLOTS * LONGEST // BLOCK
    decoder = PagedDecoder(lab.weights, kv_blocks=blocks, block_size=BLOCK, max_positions=LONGEST)
    return _scheduler(blocks, BLOCK, STEP_TOKENS), decoder, BLOCK


def _scheduler(blocks: int, block_size: int, budget: int) -> Scheduler:
    return Scheduler(BlockPool(blocks), block_size=block_size, max_num_seqs=AT_ONCE, max_batched_tokens=budget)


def _throughput(lab: Lab, make: Make, load: Sequence[Work]) -> Mapping[str, float]:
    batcher, decoder, block_size = make()
    served = run(batcher, greedily(decoder), load, lab.clock, block_size)
    took_s = max(one.times_s[-1] for one in served)
    return {
        "output tokens/s": sum(len(one.tokens) for one in served) / took_s,
        "requests done after, median, s": median(one.times_s[-1] for one in served),
        "first token after, mean, s": mean(one.times_s[0] for one in served),
        "last one done after, s": took_s,
    }


def goals(rows: list[Row]) -> Iterable[Goal]:
    """Continuous batching makes more of the same cache than static, and blocks more than slots."""
    static, slots, blocks = (number(row.figures["output tokens/s"]) for row in rows)
    yield Goal("continuous batching: tokens/s, times static", slots / static, 1.1, ">=")
    yield Goal("blocks: tokens/s, times slots of the same cache", blocks / slots, 1.0, ">=")


def measure_chunks(lab: Lab) -> Iterable[Row]:
    """One row a budget of tokens a step: a long prompt arrives while others are being answered."""
    runs = [partial(_beside_a_long_prompt, lab, budget) for budget in BUDGETS]
    for budget, figures in zip(BUDGETS, median_figures(min(lab.rounds, 3), runs), strict=True):
        whole = budget > LONG_PROMPT + DECODING
        yield Row("whole prompt in one step" if whole else f"{budget} tokens a step", figures)


def _beside_a_long_prompt(lab: Lab, budget: int) -> Mapping[str, float]:
    dice = Random(2)

    def prompt(tokens: int) -> tuple[int, ...]:
        return tuple(dice.randrange(lab.weights.shape.vocab) for _ in range(tokens))

    load = [*(Work(prompt(BLOCK), DECODED) for _ in range(DECODING)), Work(prompt(LONG_PROMPT), 2, ARRIVES_AT)]
    blocks = 2 * LONG_PROMPT // BLOCK
    decoder = PagedDecoder(lab.weights, kv_blocks=blocks, block_size=BLOCK, max_positions=LONG_PROMPT + 2)
    served = run(_scheduler(blocks, BLOCK, budget), greedily(decoder), load, lab.clock, BLOCK)
    return _pauses(served[:-1], served[-1])


def _pauses(decoding: Sequence[Served], long: Served) -> Mapping[str, float]:
    return {
        "longest pause of the others, ms": 1e3 * max(one.longest_pause_s for one in decoding),
        "first token of the long prompt after, s": long.times_s[0] - long.arrived_s,
        "all done after, s": max(one.times_s[-1] for one in (*decoding, long)),
    }


def goals_of_chunks(rows: list[Row]) -> Iterable[Goal]:
    """The smallest budget makes pauses a third of what a whole prompt makes them."""
    whole, *_, smallest = (number(row.figures["longest pause of the others, ms"]) for row in rows)
    yield Goal(
        f"{BUDGETS[-1]} tokens a step: longest pause, times that of a whole prompt", smallest / whole, 1 / 3, "<="
    )
