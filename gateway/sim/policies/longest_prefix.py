"""`longest`: the endpoint with the longest cached prefix, ties to the least loaded, no other load term.

Greedy affinity, as a warning: where all prompts begin alike, the first endpoint that has the beginning gets everything.
Precise: it sees the caches themselves. Load is requests in flight, then the prompt tokens it has computed so far.
"""

from gateway.sim.policies.parts import Composed, PolicyArgs
from gateway.sim.types import SimRequest, View


class _Computed:
    """Prompt tokens computed so far, by endpoint: what was sent there, less what it reported as cached."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        self.tokens[endpoint] = self.tokens.get(endpoint, 0) + request.prompt_tokens

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        self.tokens[endpoint] -= cached_tokens

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        pass

    def restarted(self, endpoint: int, now_s: float) -> None:
        pass


class _LongestPrefixRule:
    def __init__(self, computed: _Computed) -> None:
        self._computed = computed

    def choose(self, request: SimRequest, view: View) -> int:
        tokens = self._computed.tokens
        keys = (
            (-view.cached_blocks(endpoint.number, request.chain), endpoint.in_flight, tokens.get(endpoint.number, 0), n)
            for n, endpoint in enumerate(view.endpoints)
            if endpoint.alive
        )
        return min(keys)[-1]


def longest_prefix(_: PolicyArgs) -> Composed:
    """Most blocks cached. O(endpoints) matches."""
    computed = _Computed()
    return Composed("longest", _LongestPrefixRule(computed), (computed,))
