"""`llmd-classic`: the weighted sum of scores that llm-d (and the Gateway API inference extension) shipped first.

    score = 2 · matched blocks / blocks  +  1 · (1 − KV use)  +  1 · (longest − waiting) / (longest − shortest)

KV use and waiting requests are what was polled last; where all queues are equal each scores 1. The highest score wins,
the dice among equals. `llmd-classic` remembers what it sent (an LRU of each endpoint's size, 128 Ki tokens of a prompt
at most); `llmd-precise` follows KV events.
"""

from gateway.sim.policies.parts import Composed, PolicyArgs, dice, least, live
from gateway.sim.policies.prefixes import Approximate, Precise, Prefixes
from gateway.sim.types import SimRequest, View

# Weights of the default profile of llm-d: prefix-cache-scorer, kv-cache-utilization-scorer, queue-scorer.
PREFIX_WEIGHT = 2.0
KV_WEIGHT = 1.0
QUEUE_WEIGHT = 1.0

MOST_MATCHED_TOKENS = 131_072
"""maxPrefixTokensToMatch of llm-d's approx-prefix-cache-producer."""


class _WeightedScores:
    def __init__(self, prefixes: Prefixes, seed: int) -> None:
        self._prefixes = prefixes
        self._rng = dice(seed)

    def choose(self, request: SimRequest, view: View) -> int:
        chain = self._prefixes.looked_at(request.chain)
        blocks = max(1, len(chain))
        runs = self._prefixes.runs(chain, view)
        endpoints = live(view.endpoints)
        waiting = [endpoint.waiting for endpoint in endpoints]
        longest, shortest = max(waiting), min(waiting)
        spread = longest - shortest
        costs = []
        for endpoint in endpoints:
            queue = (longest - endpoint.waiting) / spread if spread else 1.0
            score = PREFIX_WEIGHT * runs[endpoint.number] / blocks + QUEUE_WEIGHT * queue
            costs.append((-(score + KV_WEIGHT * (1.0 - endpoint.kv_use)), endpoint.number))
        return least(costs, self._rng)


def llmd_classic(args: PolicyArgs) -> Composed:
    """Scores over what it remembers. O(endpoints)."""
    prefixes = Approximate(args.capacity_blocks, MOST_MATCHED_TOKENS)
    return Composed("llmd-classic", _WeightedScores(prefixes, args.seed), (prefixes,))


def llmd_precise(args: PolicyArgs) -> Composed:
    """Scores over what is cached indeed. O(endpoints) matches."""
    return Composed("llmd-precise", _WeightedScores(Precise(), args.seed))
