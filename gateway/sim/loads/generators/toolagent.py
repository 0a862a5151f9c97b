"""Mooncake's tool-and-agent hour: chat and two tools with fixed prompts share one stream.

    class          share   prompt                                                     answer
    chat           49 %    block 0 common to all, 0.9 k to 32 k and some far longer   343 on average
    long tool      37 %    12 fixed blocks and 1 to 4 of its own                      3 tokens, or 24 to 53
    short tool     14 %    5 fixed blocks and 1 or 2 of its own                       16 to 24

Requests come in steps of 3.05 s, a Poisson number of 20 in each. Chat is taken from a recorded trace, row by row in its
order, or, where none is given, made up: a request goes on with a recent conversation in 37 % of cases.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import Head, Room
from gateway.sim.loads.lengths import Draw, by_mean
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

BLOCK_TOKENS = 512
LONG_TOOL_TOKENS, SHORT_TOOL_TOKENS = 12 * BLOCK_TOKENS, 5 * BLOCK_TOKENS
GENERATED = 1 << 62
"""The first name of generated blocks: beyond the ids of a recorded chat."""


TOOL_AGENT_FIRST = by_mean(10_700, 13_500, 900, 120_000)
TOOL_AGENT_MORE = by_mean(700, 1_000)
TOOL_AGENT_OUTPUTS = by_mean(343, 250, 3, 2_000)


@dataclass(frozen=True, slots=True)
class ToolAgent:
    """Lengths in tokens, `step_s` in seconds. `again` is the share of chat requests that go on with one of the last
    `recent` conversations, `first` the length of new ones, `more` what a later turn adds to prompt and answer."""

    requests: int = 23_608
    step_s: float = 3.05
    per_step: float = 20.0
    chat_share: float = 0.49
    long_share: float = 0.37
    again: float = 0.37
    recent: int = 200
    first: Draw = TOOL_AGENT_FIRST
    more: Draw = TOOL_AGENT_MORE
    outputs: Draw = TOOL_AGENT_OUTPUTS
    chat: Workload | None = None


def toolagent(seed: int, load: ToolAgent = ToolAgent()) -> Workload:
    """The stream of `load`; blocks of 512 tokens. It ends early where a recorded chat does."""
    require(load.step_s > 0 and load.per_step > 0, "steps take time and have requests")
    require(load.chat_share + load.long_share <= 1, "shares add up to 1 at most")
    require(load.chat is None or load.chat.block_size == BLOCK_TOKENS, f"chat has blocks of {BLOCK_TOKENS}")

    def requests() -> Iterator[SimRequest]:
        dice, room = dice_of(seed), Room(Names(GENERATED), BLOCK_TOKENS)
        long_tool, short_tool = room.head(LONG_TOOL_TOKENS), room.head(SHORT_TOOL_TOKENS)
        chat = _made_up(load, dice, room) if load.chat is None else _recorded(load.chat)
        for number, at_s in zip(range(load.requests), _steps(load, dice), strict=False):
            kind = dice.random()
            if kind < load.chat_share:
                row = next(chat, None)
                if row is None:
                    return
                chain, output = row
            elif kind < load.chat_share + load.long_share:
                output = 3 if dice.random() < 0.63 else dice.randint(24, 53)
                chain = _after(room, long_tool, dice.randint(24, 2_036))
            else:
                output = dice.randint(16, 24)
                chain = _after(room, short_tool, dice.randint(455, 912))
            yield SimRequest(number, at_s, chain, output)

    return Workload("mooncake-toolagent", BLOCK_TOKENS, Again(requests))


def _after(room: Room, head: Head, tokens: int) -> Chain:
    names, total = room.head(tokens, head)
    return Chain(names, room.block_size, total)


def _steps(load: ToolAgent, dice: Random) -> Iterator[float]:
    """Times: what a Poisson process does within a step is all put to the step's beginning."""
    now = 0.0
    while True:
        now += dice.expovariate(load.per_step)
        yield int(now) * load.step_s


def _recorded(chat: Workload) -> Iterator[tuple[Chain, int]]:
    for r in chat.requests:
        yield r.chain, r.output_tokens


def _made_up(load: ToolAgent, dice: Random, room: Room) -> Iterator[tuple[Chain, int]]:
    common = room.head(BLOCK_TOKENS)
    talks: deque[Head] = deque(maxlen=load.recent)
    while True:
        output = load.outputs(dice)
        if talks and dice.random() < load.again:
            place = dice.randrange(len(talks))
            said = talks[place]
            del talks[place]
            prompt = room.head(load.more(dice), said)
        else:
            prompt = room.head(max(0, load.first(dice) - common.tokens), common)
        talks.append(Head(prompt.names, prompt.tokens + output))
        yield Chain(prompt.names, BLOCK_TOKENS, prompt.tokens), output
