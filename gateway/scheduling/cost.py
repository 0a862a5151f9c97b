"""What it costs to send a prompt to an endpoint, in seconds. Pure.

    cost = wait + prefill + decode pressure + crowding

    wait             = queued uncached tokens / prefill rate            what must be computed before ours
    prefill          = base + u / prefill rate + quad * u * n           u = n - cached, n = prompt tokens
    decode pressure  = itl * k / (1 - k) * expected output              k = share of the KV cache in use
    crowding         = recent uncached tokens / 40 / prefill rate       what evicts the prefixes of others

One unit, so that nothing is weighed by a taste: a thousand cached tokens are worth exactly the seconds their
computation would take, on this endpoint, and a queue costs what it makes us wait. `k/(1-k)` is the shape of a queue
near saturation: nothing while there is room, a wall when there is none. Crowding keeps a fleet even where nobody waits
(`recent_work` says why).
"""

from collections.abc import Sequence

from gateway.scheduling.types import Candidate, Terms

_FULLEST = 0.98
"""KV use is taken as at most this: the barrier stays finite and comparable when every endpoint is full."""

CROWDING = 1 / 40
"""Share of the recent work that an endpoint is dearer by. Over traces of chat and coding agents 1/50 to 1/20 reach the
same: below, the largest share of the work grows; above, prefixes are left for evenness (at 1/5 a tenth of the hits)."""


def terms_of(candidate: Candidate, prompt_tokens: int, expected_output_tokens: int) -> Terms:
    """The summands for one endpoint. O(1)."""
    speed = candidate.speed
    uncached = max(prompt_tokens - candidate.cached_tokens, 0)
    full = min(candidate.kv_use or 0.0, _FULLEST)
    return Terms(
        wait_s=speed.wait_s(candidate.queued_tokens),
        prefill_s=speed.prefill_s(uncached, prompt_tokens),
        decode_pressure_s=speed.itl_s * full / (1 - full) * expected_output_tokens,
        crowding_s=CROWDING * candidate.recent_tokens / speed.prefill_tokens_per_s,
    )


def costs_s(candidates: Sequence[Candidate], prompt_tokens: int, expected_output_tokens: int) -> list[float]:
    """The sums of `terms_of`, without the terms: a third of its time, which counts among hundreds. O(candidates)."""
    costs = []
    for candidate in candidates:
        speed = candidate.speed
        rate = speed.prefill_tokens_per_s
        uncached = max(prompt_tokens - candidate.cached_tokens, 0)
        quad_s = speed.quad_s_per_token2 * uncached * prompt_tokens
        tokens = candidate.queued_tokens + uncached + CROWDING * candidate.recent_tokens
        cost_s = speed.base_s + tokens / rate + quad_s
        if candidate.kv_use:
            full = min(candidate.kv_use, _FULLEST)
            cost_s += speed.itl_s * full / (1 - full) * expected_output_tokens
        costs.append(cost_s)
    return costs


def expected_cached_tokens(matched_tokens: int, prompt_tokens: int, block_size: int) -> int:
    """What an engine can reuse of `matched_tokens` leading tokens, in whole blocks of `block_size`.

    A prompt is never reused whole: engines compute at least its last token, so a full match of n tokens gives
    floor((n - 1) / block) blocks (vLLM's rule).
    """
    reusable = min(matched_tokens, max(prompt_tokens - 1, 0))
    return reusable // block_size * block_size
