"""The tables of the routing benchmark by their letters, each with what it must show."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from bench.result import Goal
from bench.routing_fleets import BASELINES, MILLION, caches, chat_as_filed, chat_at, nodes, policies_for
from bench.routing_runs import TableMaker
from bench.routing_types import Outcomes, Scenario, Table

CHAT_CACHES, CHAT_LARGE = "8 × 1 M, caches only", "10 × 3 M, caches only"
SPEEDS: Final = (1, 2, 3)


def chat(full: bool) -> Table:
    """E: chat."""
    policies = policies_for(full)
    rates = (40_960, 20_480) if full else (40_960,)
    timed = [
        Scenario(_chat_name(speed, rate), partial(chat_at, speed), nodes(8, MILLION, 512, rate), policies)
        for rate in rates
        for speed in SPEEDS
    ]
    return Table(
        "E",
        "Chat: Mooncake's conversation trace",
        "12,031 requests of an hour.",
        [
            Scenario(CHAT_CACHES, chat_as_filed, caches(8, MILLION, 512), policies, timed=False),
            Scenario(CHAT_LARGE, chat_as_filed, caches(10, 3 * MILLION, 512), policies, timed=False),
            *timed,
        ],
        _chat_goals,
    )


def _chat_name(speed: float, rate: int) -> str:
    return f"8 × 1 M, {rate:,} tokens/s, {speed:g} × speed"


def _chat_goals(outcomes: Outcomes) -> Sequence[Goal]:
    goals = [
        outcomes.at_least("E: hits on 8 × 1 M", CHAT_CACHES, "hit_share", 0.26),
        outcomes.at_most("E: max/mean on 8 × 1 M", CHAT_CACHES, "imbalance", 1.05),
        outcomes.at_least("E: hits on 10 × 3 M", CHAT_LARGE, "hit_share", 0.36),
    ]
    for speed in SPEEDS:
        goals += outcomes.never_worse(f"E at {speed} ×", _chat_name(speed, 40_960), "ttft_p90_s", BASELINES)
    return goals


TABLES: Final[Mapping[str, TableMaker]] = {"E": chat}
"""Each made for the full run or the short one."""
