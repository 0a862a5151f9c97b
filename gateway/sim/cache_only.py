"""Caches without time: requests one after the other, each computed and answered at once. What is left is who has what.

    request ──choose──> endpoint:  leading run cached?  ──> all its blocks are there now, the most recent ones
                                                            evicted: those that were used longest ago, a tail first

Published hit ratios of traces are counted this way. Nothing waits and nothing is in flight, so a policy can go by no
queue; its clock shows when a request arrived. Costs: O(log blocks) a request, and C-speed updates of its blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.simulated.kv_cache import KvCache, names_of
from gateway.sim.fleet import FleetPlan
from gateway.sim.play import policies_of
from gateway.sim.records import Figures, Records
from gateway.sim.types import EndpointView, Workload
from prefix_index import Chain

UNLIMITED = 1 << 40
"""More blocks than any load has."""


@dataclass(slots=True)
class WholeCache:
    """One least-recently-used cache of whole requests. A prompt longer than the cache keeps its beginning."""

    capacity_blocks: int
    cache: KvCache

    @classmethod
    def of(cls, capacity_blocks: int) -> "WholeCache":
        """An empty one."""
        return cls(capacity_blocks, KvCache(capacity_blocks))

    def cached_blocks(self, chain: Chain) -> int:
        """The leading run of the chain that is here. Changes nothing."""
        return self.cache.cached_blocks(chain.hashes)

    def use(self, chain: Chain) -> int:
        """The leading run that is here, in tokens; all of the chain is here afterwards, the most recent."""
        names = names_of(chain.hashes)
        blocks = min(len(names), self.capacity_blocks)
        held = self.cache.find(names, blocks)
        self.cache.take(names, held, blocks)
        self.cache.publish(chain.hashes, names, held.device, blocks)
        self.cache.release(chain.hashes, names, blocks, 0)
        return min(held.device * chain.block_size, chain.prompt_tokens)


@dataclass(slots=True)
class _CachesView:
    """What a policy sees: idle endpoints, and their caches if it asks."""

    caches: Sequence[WholeCache]
    endpoints: Sequence[EndpointView]
    now_s: float = 0.0
    polled_s: float = 0.0
    version: int = 0

    def cached_blocks(self, endpoint: int, chain: Chain) -> int:
        return self.caches[endpoint].cached_blocks(chain)


def play_caches(workload: Workload, plan: FleetPlan, policy: str, *, seed: int = 0) -> Figures:
    """The requests in the order of the load under one policy; times of the figures mean nothing. What happens to
    engines is left out. Raises `KeyError` as `play` does.
    """
    policies, expects = policies_of(plan, policy, seed)
    one = policies[0]
    caches = [WholeCache.of(spec.capacity_blocks) for spec in plan.specs]
    view = _CachesView(caches, _endpoints(plan))
    records = Records(len(caches))
    for request in workload.requests:
        now_s = view.now_s = view.polled_s = request.at_s
        endpoint = one.choose(request, view)
        one.sent(request, endpoint, now_s)
        row = records.begin(now_s, request.prompt_tokens, request.output_tokens)
        records.sent(row, endpoint)
        cached_tokens = caches[endpoint].use(request.chain)
        records.first_token(row, now_s, cached_tokens, expects(request.number))
        one.first_token(request, endpoint, now_s, cached_tokens)
        records.ended(row, now_s)
        one.ended(request, endpoint, now_s)
    return records.figures()


def pooled_hit_share(workload: Workload, capacity_blocks: int = UNLIMITED) -> float:
    """What one cache of that size gives for the whole load, as a share of its prompt tokens: no fleet of as many blocks
    that is routed without knowing the future does much better, and none does better than the unlimited one."""
    cache = WholeCache.of(capacity_blocks)
    prompt = cached = 0
    for request in workload.requests:
        prompt += request.prompt_tokens
        cached += cache.use(request.chain)
    return cached / prompt if prompt else 0.0


def _endpoints(plan: FleetPlan) -> list[EndpointView]:
    return [
        EndpointView(number, f"e{number}", spec.capacity_blocks * spec.block_size, spec.block_size)
        for number, spec in enumerate(plan.specs)
    ]
