"""`dynamo`: the KV router of NVIDIA Dynamo, its linear cost in blocks, by KV events.

    cost = max(prompt tokens outstanding + prompt − overlap, 0) / block size   +   distinct blocks in use, with this one

Outstanding are uncached prompt tokens from dispatch to the first token; in use are the prompt blocks of requests that
have not ended, each counted once. The lowest cost wins, the dice among equals. The published defaults (overlap credit
1, no decay, prefill load scale 1, temperature 0, output blocks not tracked) leave nothing to multiply.
"""

from gateway.sim.policies.active_blocks import ActiveBlocks
from gateway.sim.policies.outstanding import Outstanding
from gateway.sim.policies.parts import Composed, PolicyArgs, dice, least
from gateway.sim.types import SimRequest, View


class _CostInBlocks:
    def __init__(self, outstanding: Outstanding, active: ActiveBlocks, seed: int) -> None:
        self._outstanding = outstanding
        self._active = active
        self._rng = dice(seed)

    def choose(self, request: SimRequest, view: View) -> int:
        self._outstanding.grow(len(view.endpoints))
        queues = self._outstanding.uncached_tokens
        chain, prompt, block_size = request.chain, request.prompt_tokens, request.chain.block_size
        living = [endpoint.number for endpoint in view.endpoints if endpoint.alive]
        uncached = {n: max(0, prompt - view.cached_blocks(n, chain) * block_size) for n in living}
        decode_blocks = self._active.with_request(request, living)
        costs = [
            ((queues[n] + uncached[n]) / block_size + blocks, n)
            for n, blocks in zip(living, decode_blocks, strict=True)
        ]
        chosen = least(costs, self._rng)
        self._outstanding.expect(request, uncached[chosen])
        return chosen


def dynamo(args: PolicyArgs) -> Composed:
    """Lowest cost in blocks. O(endpoints) matches."""
    outstanding, active = Outstanding(), ActiveBlocks()
    return Composed("dynamo", _CostInBlocks(outstanding, active, args.seed), (outstanding, active))
