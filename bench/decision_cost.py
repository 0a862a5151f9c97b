"""What a decision takes: microseconds of one core for a fleet of so many endpoints.

candidates of a match ──> behind ──> the chooser ──> decision         as steps 6 and 7 of a request do it

Of the endpoints 8 hold some of the prompt and one is computing it; all have work outstanding. The median of many, in
turn, so that what else the machine does weighs less.
"""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from backends import EndpointFacts, EndpointId, EndpointSnapshot, LoadSample, PerfModel
from gateway.candidates import Candidates, Standing
from gateway.receipts import Receipts
from gateway.scheduling import Demand, Question, behind, chooser_of
from gateway.sim.ours import REQUEST
from gateway.sim.shared_view import ReplicaIndex
from gateway.telemetry import Telemetry
from gateway.types import Plan, Route, TokenSource
from prefix_index import HASH_BYTES, Chain, Load, Match

HOLDERS: Final = 8
BLOCKS, BLOCK_TOKENS = 500, 16
_CAPACITY_TOKENS: Final = 307_328


def decision_us(endpoints: int, repeats: int = 200) -> float:
    """Median microseconds of processor time of one decision among so many endpoints."""
    decide = _decider(endpoints, random.Random(endpoints))
    taken = []
    for _ in range(repeats):
        began_ns = time.thread_time_ns()
        decide()
        taken.append(time.thread_time_ns() - began_ns)
    return median(taken) / 1000


def _decider(endpoints: int, dice: random.Random) -> Callable[[], object]:
    receipts = Receipts(ReplicaIndex(), Telemetry(), lambda: 0.0)
    candidates = Candidates(receipts, lambda _: False)
    pairs = [_endpoint(number, dice, receipts) for number in range(endpoints)]
    standings = {standing.endpoint_id: standing for _, standing in pairs}
    plan = Plan(Chain(bytes(BLOCKS * HASH_BYTES), BLOCK_TOKENS, BLOCKS * BLOCK_TOKENS + 3), TokenSource.LOCAL)
    match = _match(endpoints, dice)
    choose = chooser_of("prefix", 0.01)

    def decide() -> object:
        able, filtered = candidates.of(pairs, REQUEST, plan, match)
        waiting = behind(able, receipts.recent_work.usual_tokens)
        return choose(
            Question(
                able,
                filtered,
                Demand(plan.chain.prompt_tokens, 256, waiting),
                dice.random,
                lambda candidate: candidates.refined(candidate, standings[candidate.endpoint_id], plan, match),
            )
        )

    return decide


def _endpoint(number: int, dice: random.Random, receipts: Receipts) -> tuple[EndpointSnapshot, Standing]:
    name, routes = f"e{number}", frozenset({Route.CHAT.value})
    facts = EndpointFacts(engine="simulated", block_size=BLOCK_TOKENS, capacity_tokens=_CAPACITY_TOKENS, routes=routes)
    load = LoadSample(0.0, running=3, waiting=0, kv_use=dice.random())
    receipts.recent_work.set_capacity(name, _CAPACITY_TOKENS)
    receipts.recent_work.note(name, dice.uniform(0, 10_000))
    speed = PerfModel(prefill_tokens_per_s=dice.uniform(9_000, 11_000))
    snapshot = EndpointSnapshot(EndpointId(name), healthy=True, generation=0, facts=facts, load=load)
    return snapshot, Standing(name, f"{name}@0", 1, facts, speed, keeps_apart=True, routes=routes)


def _match(endpoints: int, dice: random.Random) -> Match[str]:
    holders = [f"e{number}@0" for number in dice.sample(range(endpoints), min(HOLDERS, endpoints))]
    return Match(
        blocks={holder: dice.randrange(1, BLOCKS) for holder in holders},
        loads={f"e{number}": Load(2, dice.randrange(5_000), 500) for number in range(endpoints)},
        walked_blocks=BLOCKS,
        speculative={holders[0]: BLOCKS},
        ages_s=dict.fromkeys(holders, 3.0),
    )
