"""Tables B to D: the loads that other projects publish their figures with."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from bench.result import Goal
from bench.routing_fleets import (
    BASELINES,
    LADDER,
    WARM_UP_S,
    llm_d_ladder,
    llm_d_pods,
    llm_d_stages,
    policies_for,
    small_workers,
)
from bench.routing_types import Outcomes, Scenario, Series, Table
from gateway.sim.loads import by_name

ANSWERS: Final = "answers of 250 tokens"
LONG_ANSWERS: Final = "answers of 1,000 tokens"
RATES: Final = tuple(f"{rate:g}/s" for rate, _ in LADDER[1:])
FASTEST: Final = RATES[-1]

LADDER_TEXT: Final = """
150 groups of 5 prompts, 6,000 tokens of the group's and 1,200 of the prompt's own, over and over, at rates that climb
from 3 to 60 requests a second; 8 pods of two H100 (Qwen3-32B: 307,328 tokens of KV cache, 20,480 tokens/s). All
prefixes fill 73 % of the fleet's caches, and eight times what one pod keeps. The warm-up of 50 s is left out of the
figures.

The specification says answers of 1,000 tokens, but the published throughput does not: 8,730 tokens/s over a ladder of
36.1 requests/s are 242 tokens an answer. With 1,000 the fleet could write the answers of about 20 requests/s, whoever
routes, and everything beyond that only measures how long the queue is. So the ladder is played with 250, and the full
run shows 1,000 too.

`llmd-classic` is better here than what was published of llm-d's approximate index: in the simulator its memory has
the very size and order of the caches, and the engines' blocks.
"""


def ladder(full: bool) -> Table:
    """B."""
    lengths = {ANSWERS: 250, LONG_ANSWERS: 1000} if full else {ANSWERS: 250}
    return Table(
        "B",
        "llm-d's ladder",
        LADDER_TEXT,
        [
            Scenario(
                name,
                partial(llm_d_ladder, tokens),
                llm_d_pods(),
                policies_for(full),
                skip_s=WARM_UP_S,
                extra=llm_d_stages,
            )
            for name, tokens in lengths.items()
        ],
        _ladder_goals,
        series=(
            Series("TTFT p90 in seconds, by requests a second", "ttft_p90_s"),
            Series("hits in %, by requests a second", "hit_share", 0, 100),
            Series("output tokens/s, by requests a second", "output_tokens_per_s", 0),
        ),
    )


def _ladder_goals(outcomes: Outcomes) -> list[Goal]:
    goals = [outcomes.at_most(f"B: TTFT p90 at {FASTEST}", ANSWERS, f"ttft_p90_s @ {FASTEST}", 1.0)]
    for rate in RATES:
        goals += outcomes.never_worse("B", ANSWERS, f"ttft_p90_s @ {rate}", ("llmd-precise",))
    return goals + outcomes.never_worse("B", ANSWERS, "output_tokens_per_s", BASELINES, more_is_better=True)


SHARED: Final = "8 × 40,000 tokens"
SHARED_LARGE: Final = "8 × 447,952 tokens"
SHARED_TEXT: Final = """
SGLang's generated-shared-prefix with its defaults: 64 groups of 16 prompts, 2,048 tokens of the group's and 128 of
their own, answers of 256, all at once. SGLang 0.4 published 20 % of hits without and 75 % with cache-aware routing.
Eight workers with all of an H100's memory would give round robin 50 %; the published fifth takes workers that keep
40,000 tokens (Llama-3.1-8B otherwise), so that is the fleet here.
"""


def shared_prefixes(full: bool) -> Table:
    """C."""
    sizes = {SHARED: 40_000, SHARED_LARGE: 447_952} if full else {SHARED: 40_000}
    load = by_name["sglang-shared-prefix"]
    return Table(
        "C",
        "SGLang's shared prefixes",
        SHARED_TEXT,
        [Scenario(name, load, small_workers(8, tokens), policies_for(full)) for name, tokens in sizes.items()],
        lambda outcomes: [
            outcomes.at_least("C: hits", SHARED, "hit_share", 0.75),
            *outcomes.never_worse("C", SHARED, "output_tokens_per_s", BASELINES, more_is_better=True),
        ],
    )


ONE_PREFIX: Final = "2 workers"
ONE_PREFIX_TEXT: Final = """
A known bad case of greedy affinity (SGLang's issue 21199): 400 prompts of 2,548 common and 7,252 own tokens, answers
of 430, 3 a second with 36 in flight at most, on two workers (Llama-3.1-8B on an H100 each). Who follows the common
prefix leaves one worker idle. There is nothing to win over round robin but evenness.
"""


def one_prefix(full: bool) -> Table:
    """D."""
    return Table(
        "D",
        "One prefix for all",
        ONE_PREFIX_TEXT,
        [Scenario(ONE_PREFIX, by_name["sglang-21199"], small_workers(2, 447_952), policies_for(full))],
        _one_prefix_goals,
    )


def _one_prefix_goals(outcomes: Outcomes) -> Sequence[Goal]:
    return [
        goal
        for figure in ("ttft_mean_s", "span_s")
        for goal in outcomes.never_worse("D", ONE_PREFIX, figure, ("rr", "longest"))
    ]
