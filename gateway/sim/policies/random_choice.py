"""`random`: any endpoint that is alive, each as likely."""

from gateway.sim.policies.parts import Composed, PolicyArgs, dice, live
from gateway.sim.types import SimRequest, View

_TRIES = 16
"""Throws before the dead are sorted out: with half of a fleet dead, one decision in 65,536 gets there."""


class _RandomRule:
    def __init__(self, seed: int) -> None:
        self._rng = dice(seed)

    def choose(self, request: SimRequest, view: View) -> int:
        endpoints = view.endpoints
        for _ in range(_TRIES):
            endpoint = endpoints[int(self._rng.random() * len(endpoints))]
            if endpoint.alive:
                return endpoint.number
        return self._rng.choice(live(endpoints)).number


def random_choice(args: PolicyArgs) -> Composed:
    """A throw of the dice for each request. O(1)."""
    return Composed("random", _RandomRule(args.seed))
