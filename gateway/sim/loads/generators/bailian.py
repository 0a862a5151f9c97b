"""Two loads of a cloud's model service (Qwen-Bailian): people who chat, and programs that call.

    A   sessions of people: pauses of minutes between turns, a system prompt of each user's own; 62 % would hit an
        unlimited cache, 80 % of reuse within 10 minutes
    B   programs, nearly all single turns: a few send most, each with its own fixed beginning, in bursts of seconds;
        54 % would hit, 80 % of reuse within 10 seconds

Published are these shares, not the lengths and rates behind them: those below are ours, chosen so that the shares come
out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import Room, Turn, starts
from gateway.sim.loads.lengths import Draw, by_mean
from gateway.sim.loads.merging import Conversation, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import HASH_BYTES, Chain

PEOPLE_SYSTEM = by_mean(500, 300)
PEOPLE_INPUTS = by_mean(500, 700)
PEOPLE_OUTPUTS = by_mean(350, 300)


@dataclass(frozen=True, slots=True)
class People:
    """Lengths in tokens, times in seconds; `turns` is the mean of a geometric number, `think_s` of exponential ones."""

    sessions: int = 5_000
    sessions_per_s: float = 0.7
    users: int = 2_500
    system: Draw = PEOPLE_SYSTEM
    inputs: Draw = PEOPLE_INPUTS
    outputs: Draw = PEOPLE_OUTPUTS
    turns: float = 2.2
    think_s: float = 300.0
    block_size: int = 16


def bailian_chat(seed: int, load: People = People()) -> Workload:
    """Trace A's kind: each session belongs to a user drawn evenly, who is its tenant."""
    require(load.sessions_per_s > 0 and load.users > 0 and load.think_s > 0, "rates, users and pauses are more than 0")
    require(load.turns >= 1 and load.block_size > 0, "a session has a turn, a block has tokens")

    def conversations() -> Iterator[Conversation]:
        dice = dice_of(seed)
        room = Room(Names(), load.block_size)
        heads = [room.head(load.system(dice)) for _ in range(load.users)]
        for number, start_s in zip(range(load.sessions), starts(dice, load.sessions_per_s), strict=False):
            user = dice.randrange(load.users)
            yield room.converse(f"chat-{number}", start_s, heads[user], _turns(load, dice), f"user-{user}")

    def requests() -> Iterator[SimRequest]:
        return in_order_of_time(conversations())

    return Workload("bailian-chat", load.block_size, Again(requests))


def _turns(load: People, dice: Random) -> Iterator[Turn]:
    yield Turn(load.inputs(dice), load.outputs(dice))
    while dice.random() > 1 / load.turns:
        yield Turn(load.inputs(dice), load.outputs(dice), dice.expovariate(1 / load.think_s))


PROGRAMS_TYPICAL = by_mean(1_500, 1_500, 200, 16_000)
PROGRAMS_OUTPUTS = by_mean(200, 200)


@dataclass(frozen=True, slots=True)
class Programs:
    """Lengths in tokens, times in seconds. Client k has a share like 1 / (k + 1) ** `skew`; it sends bursts of `burst`
    requests on average, `gap_s` apart; `head_share` of its prompts is always the same, not in `headless` ones."""

    requests: int = 20_000
    rate_per_s: float = 5.0
    clients: int = 300
    skew: float = 1.0
    burst: float = 3.0
    gap_s: float = 2.0
    head_share: float = 0.6
    headless: float = 0.08
    typical: Draw = PROGRAMS_TYPICAL
    outputs: Draw = PROGRAMS_OUTPUTS
    block_size: int = 16


def bailian_programs(seed: int, load: Programs = Programs()) -> Workload:
    """Trace B's kind: single turns; the client is tenant and session."""
    require(load.rate_per_s > 0 and load.clients > 0 and load.gap_s > 0, "rates, clients and gaps are more than 0")
    require(load.burst >= 1 and 0 <= load.head_share < 1, "a burst has a request, a share is below 1")

    def requests() -> Iterator[SimRequest]:
        dice, names = dice_of(seed), Names()
        heads = [_head(load, dice, names) for _ in range(load.clients)]
        weights = [1 / (rank + 1) ** load.skew for rank in range(load.clients)]
        rates = [load.rate_per_s * weight / sum(weights) for weight in weights]
        due = [(dice.expovariate(rate / load.burst), client) for client, rate in enumerate(rates)]
        heapify(due)
        for number in range(load.requests):
            at_s, client = due[0]
            head = heads[client]
            head_tokens = len(head) // HASH_BYTES * load.block_size
            own = round(head_tokens * (1 / load.head_share - 1) * 2 * dice.random()) if load.head_share else head_tokens
            tokens = head_tokens + own
            chain = Chain(
                names.extend(b"" if dice.random() < load.headless else head, tokens // load.block_size),
                load.block_size,
                tokens,
            )
            yield SimRequest(number, at_s, chain, load.outputs(dice), f"client-{client}", f"client-{client}")
            heapreplace(due, (at_s + _gap(load, rates[client], dice), client))

    return Workload("bailian-programs", load.block_size, Again(requests))


def _head(load: Programs, dice: Random, names: Names) -> bytes:
    return names.fresh(round(load.typical(dice) * load.head_share) // load.block_size)


def _gap(load: Programs, rate_per_s: float, dice: Random) -> float:
    """Seconds to the client's next request: within its burst, or to the next burst, so that its rate comes out."""
    if dice.random() > 1 / load.burst:
        return dice.expovariate(1 / load.gap_s)
    busy_s = (load.burst - 1) * load.gap_s
    # A client that would never rest is one endless burst, and sends less than its share.
    return dice.expovariate(1 / max(load.gap_s, load.burst / rate_per_s - busy_s))
