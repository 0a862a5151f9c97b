"""`least-work`: the fewest prompt tokens outstanding, with no idea of what is cached where.

The control for loads that share nothing: there no policy can do better by knowing prompts. A prompt counts in full from
dispatch to its first token; among equals the fewest requests in flight, then in turn.
"""

from gateway.sim.policies.outstanding import Outstanding
from gateway.sim.policies.parts import Composed, PolicyArgs
from gateway.sim.types import SimRequest, View


class _LeastWorkRule:
    def __init__(self, outstanding: Outstanding) -> None:
        self._outstanding = outstanding
        self._turn = 0

    def choose(self, request: SimRequest, view: View) -> int:
        endpoints = view.endpoints
        self._outstanding.grow(len(endpoints))
        tokens, requests = self._outstanding.uncached_tokens, self._outstanding.requests
        turn, total = self._turn, len(endpoints)
        # The request's own tokens are the same everywhere, so they decide nothing.
        keys = ((tokens[n], requests[n], (n - turn) % total, n) for n in range(total) if endpoints[n].alive)
        chosen = min(keys)[-1]
        self._turn = chosen + 1
        return chosen


def least_work(_: PolicyArgs) -> Composed:
    """Fewest tokens to prefill. O(endpoints)."""
    outstanding = Outstanding()
    return Composed("least-work", _LeastWorkRule(outstanding), (outstanding,))
