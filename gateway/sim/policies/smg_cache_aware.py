"""`smg`: the cache_aware policy of SMG, and of the routers of SGLang and vLLM, from which and to which it came.

    most − fewest > 64 and most > 1.5 · fewest    -> fewest requests              (load is uneven: affinity is dropped)
    else matched / prompt > 0.3                   -> where the prefix was sent last
    else                                          -> fewest requests

Among equals the first. The gate looks at all endpoints, the dead ones too; if the last holder is dead the first that
lives takes the request, and that is not remembered. The tree hears of no restart and no eviction.

Kinder than the original in one point: requests count from dispatch on, not from the first byte.
"""

from collections.abc import Sequence

from gateway.sim.policies.last_holders import LastHolders
from gateway.sim.policies.parts import Composed, PolicyArgs, live, next_live
from gateway.sim.types import EndpointView, SimRequest, View

# Defaults of the command line of lightseekorg/smg (and sglang-router, vllm-router), as their start-up log shows them.
CACHE_THRESHOLD = 0.3
BALANCE_ABS_THRESHOLD = 64
BALANCE_REL_THRESHOLD = 1.5
EVICTION_INTERVAL_S = 120.0
MAX_TREE_CHARACTERS = 1 << 26

CHARACTERS_PER_TOKEN = 4
"""English prose in the vocabularies of current models; over HTTP the tree counts characters."""


class _CacheAwareRule:
    def __init__(self, max_tree_blocks: int) -> None:
        self._tree = LastHolders()
        self._max_tree_blocks = max_tree_blocks
        self._swept_s = 0.0

    def choose(self, request: SimRequest, view: View) -> int:
        endpoints = view.endpoints
        self._sweep(view.now_s)
        if not _is_uneven(endpoints):
            holder, blocks = self._tree.match(request.chain)
            if holder is not None and blocks * request.chain.block_size > CACHE_THRESHOLD * request.prompt_tokens:
                if not endpoints[holder].alive:
                    return next_live(endpoints, 0)
                return self._remembered(request, holder)
        fewest = min(live(endpoints), key=_in_flight)
        return self._remembered(request, fewest.number)

    def _remembered(self, request: SimRequest, endpoint: int) -> int:
        self._tree.record(request.chain, endpoint)
        return endpoint

    def _sweep(self, now_s: float) -> None:
        if now_s - self._swept_s >= EVICTION_INTERVAL_S:
            self._swept_s = now_s
            self._tree.evict(self._max_tree_blocks)


def _in_flight(endpoint: EndpointView) -> int:
    return endpoint.in_flight


def _is_uneven(endpoints: Sequence[EndpointView]) -> bool:
    loads = [endpoint.in_flight for endpoint in endpoints]
    fewest, most = min(loads), max(loads)
    return most - fewest > BALANCE_ABS_THRESHOLD and most > BALANCE_REL_THRESHOLD * fewest


def smg_cache_aware(args: PolicyArgs) -> Composed:
    """Affinity while load is even. O(endpoints + nodes on the path)."""
    max_tree_blocks = MAX_TREE_CHARACTERS // CHARACTERS_PER_TOKEN // args.block_size
    return Composed("smg", _CacheAwareRule(max_tree_blocks))
