"""`rr`: each endpoint in turn, the dead ones skipped."""

from gateway.sim.policies.parts import Composed, PolicyArgs, next_live
from gateway.sim.types import SimRequest, View


class _RoundRobinRule:
    def __init__(self) -> None:
        self._turn = 0

    def choose(self, request: SimRequest, view: View) -> int:
        chosen = next_live(view.endpoints, self._turn)
        self._turn = chosen + 1
        return chosen


def round_robin(_: PolicyArgs) -> Composed:
    """In turn, from endpoint 0. O(1), and one step for each dead endpoint skipped."""
    return Composed("rr", _RoundRobinRule())
