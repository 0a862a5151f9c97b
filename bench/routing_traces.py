"""Tables E to H: recorded traffic."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from bench.result import Goal
from bench.routing_fleets import (
    BASELINES,
    MILLION,
    caches,
    chat_as_filed,
    chat_at,
    coding,
    coding_by_turn,
    nodes,
    policies_for,
    small_workers,
    synthetic,
    synthetic_as_filed,
    tau_in_order,
    tau_side_by_side,
)
from bench.routing_types import Outcomes, Scenario, Table

NODES: Final = """
With time, an endpoint is a node of 8 GPUs with a model that leaves room for the tokens named: 40,960 tokens/s of
prefill, 0.6 ns for each pair of a new token and a prompt token, 12 ms between tokens. Without time, requests are
answered at once, one after the other, and the last block of a prompt counts even where it is not full, as in table A.
"""

CHAT_CACHES: Final = "8 × 1 M, caches only"
CHAT_LARGE: Final = "10 × 3 M, caches only"
SPEEDS: Final = (1, 2, 3)
FAST_PREFILL: Final = 40_960
SLOW_PREFILL: Final = 20_480
CHAT_TEXT: Final = f"""
Mooncake's conversation trace: 12,031 requests of an hour, prompts of 12,035 tokens on average; three quarters of the
blocks are used once, and every prompt begins with the same block. Its times come in steps of 3 s and are spread at
random over them. {NODES.strip()} At 20,480 tokens/s (full run) the fleet is near saturation at twice the recorded
speed, and beyond it at three times.
"""


def chat(full: bool) -> Table:
    """E."""
    policies = policies_for(full)
    timed = [
        Scenario(chat_name(speed, rate), partial(chat_at, speed), nodes(8, MILLION, 512, rate), policies)
        for rate in ((FAST_PREFILL, SLOW_PREFILL) if full else (FAST_PREFILL,))
        for speed in SPEEDS
    ]
    return Table(
        "E",
        "Chat",
        CHAT_TEXT,
        [
            Scenario(CHAT_CACHES, chat_as_filed, caches(8, MILLION, 512), policies, timed=False),
            Scenario(CHAT_LARGE, chat_as_filed, caches(10, 3 * MILLION, 512), policies, timed=False),
            *timed,
        ],
        _chat_goals,
    )


def chat_name(speed: float, rate: int = FAST_PREFILL) -> str:
    """The scenario of that speed on nodes of that rate."""
    return f"8 × 1 M, {rate:,} tokens/s, {speed:g} × speed"


def _chat_goals(outcomes: Outcomes) -> Sequence[Goal]:
    goals = [
        outcomes.at_least("E: hits on 8 × 1 M", CHAT_CACHES, "hit_share", 0.26),
        outcomes.at_most("E: max/mean on 8 × 1 M", CHAT_CACHES, "imbalance", 1.05),
        outcomes.at_least("E: hits on 10 × 3 M", CHAT_LARGE, "hit_share", 0.36),
    ]
    for speed in SPEEDS:
        goals += outcomes.never_worse(f"E at {speed} ×", chat_name(speed), "ttft_p90_s", BASELINES)
    return goals


CODING_CACHES: Final = "8 × 1 M, caches only"
CODING_BY_TURN: Final = "8 × 1 M, turn by turn"
CODING_TEXT: Final = """
Recorded Claude Code sessions, the first six hours: 7,126 requests of 181 sessions, prompts of 118,000 tokens on
average, tool schemas and system prompts shared as recorded. Without time a session starts each 120 s, in the order of
the file. With time sessions start by chance, one in 120 s on average, and each turn comes as long after the answer
before it as it did when it was recorded, so that a slow fleet slows its users. Nodes as in table E.
"""


def coding_agents(full: bool) -> Table:
    """F."""
    policies = policies_for(full)
    return Table(
        "F",
        "Coding agents",
        CODING_TEXT,
        [
            Scenario(CODING_CACHES, coding, caches(8, MILLION, 64), policies, timed=False),
            Scenario(CODING_BY_TURN, coding_by_turn, nodes(8, MILLION, 64), policies),
        ],
        lambda outcomes: [
            outcomes.at_least("F: hits", CODING_CACHES, "hit_share", 0.935),
            outcomes.at_least("F: hits, further", CODING_CACHES, "hit_share", 0.942),
            outcomes.at_most("F: max/mean", CODING_CACHES, "imbalance", 1.10),
            *outcomes.never_worse("F", CODING_BY_TURN, "ttft_p90_s", BASELINES),
        ],
    )


TAU_CACHES: Final = "4 × 0.2 M, caches only"
TAU_BY_TURN: Final = "4 × 0.2 M, turn by turn"
TAU_TEXT: Final = """
An airline's agent (tau-bench): 2,454 requests of 200 conversations with the same 14 tools, prompts of 5,348 tokens on
average. Without time one conversation follows the other; with time one begins each 10 s, and a turn comes 5 s after
the answer before it, on Llama-3.1-8B with an H100 each.
"""


def airline(full: bool) -> Table:
    """G."""
    policies = policies_for(full)
    return Table(
        "G",
        "Tools",
        TAU_TEXT,
        [
            Scenario(TAU_CACHES, tau_in_order, caches(4, 200_000, 16), policies, timed=False),
            Scenario(TAU_BY_TURN, tau_side_by_side, small_workers(4, 200_000), policies),
        ],
        lambda outcomes: [
            outcomes.at_least("G: hits", TAU_CACHES, "hit_share", 0.95),
            *outcomes.never_worse("G", TAU_BY_TURN, "ttft_p90_s", BASELINES),
        ],
    )


SYNTHETIC_CACHES: Final = "10 × 3 M, caches only"
SYNTHETIC_TIMED: Final = "10 × 3 M, as recorded"
SYNTHETIC_TEXT: Final = """
Mooncake's synthetic trace: 3,993 requests in 17 minutes, prompts of 15,326 tokens on average; a third is cached in
its first half and 86 % in its second. Nodes as in table E.
"""


def many_prefixes(full: bool) -> Table:
    """H."""
    policies = policies_for(full)
    return Table(
        "H",
        "Many prefixes",
        SYNTHETIC_TEXT,
        [
            Scenario(SYNTHETIC_CACHES, synthetic_as_filed, caches(10, 3 * MILLION, 512), policies, timed=False),
            Scenario(SYNTHETIC_TIMED, synthetic, nodes(10, 3 * MILLION, 512), policies),
        ],
        lambda outcomes: [
            outcomes.at_least("H: hits", SYNTHETIC_CACHES, "hit_share", 0.648),
            *outcomes.never_worse("H", SYNTHETIC_TIMED, "ttft_p90_s", BASELINES),
        ],
    )
