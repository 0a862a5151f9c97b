"""`llmd-sticky`: llm-d since August 2026, sticky until saturated.

    keep only endpoints with matched / prompt >= 0.8, if there are any, unless
        (fewest tokens in flight of those − fewest of the others) / 15,928 tokens/s > 18 s
    then the fewest of: uncached tokens in flight + this prompt's uncached tokens

Tokens in flight are uncached prompt tokens, from dispatch to the first token. The dice choose among equals.
`llmd-sticky` goes by what it sent, as shipped; `llmd-sticky-precise` by KV events.
"""

from gateway.sim.policies.llmd_classic import MOST_MATCHED_TOKENS
from gateway.sim.policies.outstanding import Outstanding
from gateway.sim.policies.parts import Composed, PolicyArgs, dice, least
from gateway.sim.policies.prefixes import Approximate, Precise, Prefixes
from gateway.sim.types import SimRequest, View

# Defaults of llm-d's prefix-cache-affinity-filter.
AFFINITY_THRESHOLD = 0.8
MAX_TTFT_PENALTY_S = 18.0
PEAK_PREFILL_TOKENS_PER_S = 15_928.0
"""Measured by them: Qwen 32B on two H100, vLLM 0.19, one chunk of 8,192 tokens."""

QUEUE_THRESHOLD_TOKENS = 4_194_304
"""queueThresholdTokens of llm-d's token-load-scorer: beyond, all loads are alike."""


class _StickyUntilSaturated:
    def __init__(self, prefixes: Prefixes, outstanding: Outstanding, seed: int) -> None:
        self._prefixes = prefixes
        self._outstanding = outstanding
        self._rng = dice(seed)

    def choose(self, request: SimRequest, view: View) -> int:
        self._outstanding.grow(len(view.endpoints))
        chain = self._prefixes.looked_at(request.chain)
        runs = self._prefixes.runs(chain, view)
        living = [endpoint.number for endpoint in view.endpoints if endpoint.alive]
        least_run = max(1, len(chain)) * AFFINITY_THRESHOLD
        kept = self._kept([n for n in living if runs[n] >= least_run], [n for n in living if runs[n] < least_run])
        queues = self._outstanding.uncached_tokens
        prompt, block_size = request.prompt_tokens, chain.block_size
        costs = [(min(queues[n] + prompt - runs[n] * block_size, QUEUE_THRESHOLD_TOKENS), n) for n in kept]
        chosen = least(costs, self._rng)
        self._outstanding.expect(request, prompt - runs[chosen] * block_size)
        return chosen

    def _kept(self, sticky: list[int], others: list[int]) -> list[int]:
        if not sticky or not others:
            return sticky or others
        queues = self._outstanding.uncached_tokens
        penalty_tokens = min(queues[n] for n in sticky) - min(queues[n] for n in others)
        return sticky + others if penalty_tokens / PEAK_PREFILL_TOKENS_PER_S > MAX_TTFT_PENALTY_S else sticky


def llmd_sticky(args: PolicyArgs) -> Composed:
    """Sticky by what it remembers. O(endpoints)."""
    outstanding, prefixes = Outstanding(), Approximate(args.capacity_blocks, MOST_MATCHED_TOKENS)
    rule = _StickyUntilSaturated(prefixes, outstanding, args.seed)
    return Composed("llmd-sticky", rule, (outstanding, prefixes))


def llmd_sticky_precise(args: PolicyArgs) -> Composed:
    """Sticky by what is cached indeed. O(endpoints) matches."""
    outstanding = Outstanding()
    return Composed("llmd-sticky-precise", _StickyUntilSaturated(Precise(), outstanding, args.seed), (outstanding,))
