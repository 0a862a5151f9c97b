"""Coding agents with very long contexts, after a study of 219 sessions with GLM-5.2 (their main agents).

    published   turns p50 107, p90 354; input p50 195 k, p90 521 k; a turn adds p50 632, p90 3,735 tokens;
                output p50 317, p90 1,705; pauses p50 2 s, p90 24 s; 2.8 % of turns reset the prefix

A reset keeps the head, the tools and the system prompt, and nothing else: the history is sent rewritten, some of it cut
away. How long sessions are at first and what a reset leaves of them are ours, so that the inputs come out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import Room, Turn, starts
from gateway.sim.loads.lengths import Draw, by_p90
from gateway.sim.loads.merging import Conversation, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload

CODING_STUDY_FIRST = by_p90(15_000, 300_000, 1, 600_000)
CODING_STUDY_TURNS = by_p90(107, 354, 1, 2_000)
CODING_STUDY_MORE = by_p90(632, 3_735)
CODING_STUDY_OUTPUTS = by_p90(317, 1_705, 1, 32_000)
CODING_STUDY_PAUSES_MS = by_p90(2_000, 24_000)


@dataclass(frozen=True, slots=True)
class CodingStudy:
    """Lengths in tokens, times in seconds. `pauses_ms` in milliseconds, as draws are whole numbers."""

    sessions: int = 219
    sessions_per_s: float = 1 / 60
    head_tokens: int = 20_000
    first: Draw = CODING_STUDY_FIRST
    turns: Draw = CODING_STUDY_TURNS
    more: Draw = CODING_STUDY_MORE
    outputs: Draw = CODING_STUDY_OUTPUTS
    pauses_ms: Draw = CODING_STUDY_PAUSES_MS
    reset_share: float = 0.028
    left_low: float = 0.5
    left_high: float = 1.0
    context_tokens: int = 900_000
    block_size: int = 64


def coding_study(seed: int, load: CodingStudy = CodingStudy()) -> Workload:
    """The sessions of `load`, starting at random, one a minute on average."""
    require(load.sessions_per_s > 0 and load.block_size > 0, "a rate and a block are more than 0")
    require(0 <= load.left_low <= load.left_high <= 1, "a reset leaves a part")

    def conversations() -> Iterator[Conversation]:
        dice = dice_of(seed)
        room = Room(Names(), load.block_size)
        head = room.head(load.head_tokens)
        for number, start_s in zip(range(load.sessions), starts(dice, load.sessions_per_s), strict=False):
            yield room.converse(f"coding-{number}", start_s, head, _turns(load, dice))

    def requests() -> Iterator[SimRequest]:
        return in_order_of_time(conversations())

    return Workload("coding-study", load.block_size, Again(requests))


def _turns(load: CodingStudy, dice: Random) -> Iterator[Turn]:
    """`context` is what is behind the head when a turn begins."""
    new, output = load.first(dice), load.outputs(dice)
    yield Turn(new, output)
    context = new + output
    for _ in range(load.turns(dice) - 1):
        wait_s = load.pauses_ms(dice) / 1000
        new, output, kept = load.more(dice), load.outputs(dice), None
        if dice.random() < load.reset_share or load.head_tokens + context + new > load.context_tokens:
            context = round(context * (load.left_low + (load.left_high - load.left_low) * dice.random()))
            new, kept, context = new + context, load.head_tokens, 0
        yield Turn(new, output, wait_s, kept)
        context += new + output
