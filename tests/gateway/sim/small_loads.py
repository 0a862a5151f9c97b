"""Loads of a few hundred requests, made to look at one thing."""

import random
from collections.abc import Iterable

from gateway.sim.loads.names import Names
from gateway.sim.types import SimRequest, Workload
from prefix_index import HASH_BYTES, Chain

BLOCK = 16
_TURNS = 8


def request(number: int, at_s: float, names: bytes, *, output_tokens: int = 20, after: int | None = None) -> SimRequest:
    """A prompt of these whole blocks and three tokens."""
    chain = Chain(names, BLOCK, len(names) // HASH_BYTES * BLOCK + 3)
    return SimRequest(number, at_s, chain, output_tokens, after=after)


def together(prompts: Iterable[bytes]) -> Workload:
    """A burst, a millisecond between two: all are there before the first has its first token."""
    return Workload("burst", BLOCK, [request(n, n * 1e-3, names) for n, names in enumerate(prompts)])


def conversations(seed: int, *, per_s: float = 1.5, until_s: float = 300.0) -> Workload:
    """Conversations that begin at random, of 1,000 to 5,000 tokens and eight turns, each a few hundred tokens longer
    and some 7 s after the one before."""
    dice, names = random.Random(seed), Names()
    turns: list[tuple[float, bytes]] = []
    began_s = dice.expovariate(per_s)
    while began_s < until_s:
        at_s, chain = began_s, names.fresh(dice.randrange(60, 300))
        for _ in range(_TURNS):
            turns.append((at_s, chain))
            chain += names.fresh(dice.randrange(8, 60))
            at_s += 1 + dice.expovariate(1 / 6)
        began_s += dice.expovariate(per_s)
    turns.sort()
    asked = [request(n, at_s, chain, output_tokens=60) for n, (at_s, chain) in enumerate(turns) if at_s < until_s]
    return Workload("conversations", BLOCK, asked)
