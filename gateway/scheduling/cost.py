"""What it costs to send a prompt to an endpoint, in seconds. Pure.

    cost = wait + adapter load + prefill + delays + displacement + decode pressure + crowding + adapter eviction

    wait             = queued uncached tokens / prefill rate            what must be computed before ours
    prefill          = base + work; work = u / rate + quad * u * n      u = n - cached, n = prompt tokens
    adapter load     = seconds, where the LoRA adapter is not there     learned from first uses
    delays           = (work + adapter load) * behind                   what those who come behind wait for ours
    displacement     = work * wanted again                              what it pushes out, computed once more
    decode pressure  = itl * k / (1 - k) * expected output / 500        k = share of the KV cache in use
    adapter eviction = load of the one that is pushed out * how likely it is wanted within a minute
    crowding         = recent uncached tokens / 16 * (1 / rate + quad * n)    what evicts the prefixes of others

One unit, so that nothing is weighed by a taste: a thousand cached tokens are worth exactly the seconds their
computation would take, on this endpoint, and a queue costs what it makes us wait.

Who computes what another endpoint has cached delays not itself alone: all that come behind wait for it too. By Little's
law as many come during a wait as wait at a time, so `behind` is the number of requests that wait at an average
endpoint: nothing while the fleet is idle, when the nearest to an answer is best; in a full one prefixes count for more,
where a cost without it would compute the most just when it can least.

What is computed takes the place of as much that was there; of that, as large a share will be missed as prompts find of
themselves (`wanted_again`): next to nothing where nobody shares, next to all of it among conversations.

`k/(1-k)` is the shape of a queue near saturation: nothing while there is room, a wall when there is none. Crowding
keeps a fleet even where nobody waits (`recent_work` says why).
"""

from collections.abc import Sequence

from gateway.scheduling.types import Candidate, Demand, Terms

FULLEST = 0.98
"""KV use is taken as at most this: the barrier stays finite and comparable when every endpoint is full."""
PRESSURE = 1 / 500
"""How much slower an answer is written where k / (1 - k) is 1, half of the cache in use; at 0.98 a tenth. A wall for
who is full where others are not, and no more: k is a second old, and ten times as much moves requests after its noise.
In llm-d's ladder with answers of 1,000 tokens that makes the TTFT a tenth longer and loses a point of hits, with equal
prompts of 20,000 tokens in an overfull fleet 45 % longer. Nothing at all is as good there, and is blind to a cache
that overflows: code generation with large contexts waits three tenths longer."""
CROWDING = 1 / 16
"""Share of the recent work that an endpoint is dearer by. Over traces of chat and coding agents 1/40 to 1/10 reach the
same hits: below, the largest share of the work grows; above, prefixes are left for evenness (at 1/8 half a point)."""


def terms_of(candidate: Candidate, demand: Demand) -> Terms:
    """The summands for one endpoint. O(1)."""
    speed = candidate.speed
    prefill_s = speed.prefill_s(max(demand.prompt_tokens - candidate.cached_tokens, 0), demand.prompt_tokens)
    work_s = prefill_s - speed.base_s
    full = min(candidate.kv_use or 0.0, FULLEST)
    return Terms(
        wait_s=speed.wait_s(candidate.queued_tokens),
        prefill_s=prefill_s,
        delays_s=(work_s + candidate.adapter_load_s) * demand.behind,
        displacement_s=work_s * demand.wanted_again,
        decode_pressure_s=PRESSURE * speed.itl_s * full / (1 - full) * demand.expected_output_tokens,
        crowding_s=CROWDING * candidate.recent_tokens * speed.token_s(demand.prompt_tokens),
        adapter_load_s=candidate.adapter_load_s,
        adapter_evicts_s=candidate.adapter_evicts_s,
    )


def costs_s(candidates: Sequence[Candidate], demand: Demand) -> list[float]:
    """The sums of `terms_of`, without the terms: a third of its time, which counts among hundreds. O(candidates)."""
    costs = []
    prompt_tokens, weight = demand.prompt_tokens, 1 + demand.behind + demand.wanted_again
    answer = PRESSURE * demand.expected_output_tokens
    for candidate in candidates:
        speed = candidate.speed
        rate = speed.prefill_tokens_per_s
        cached = candidate.cached_tokens
        uncached = prompt_tokens - cached if cached < prompt_tokens else 0  # calls of `max` take a fifth of the loop
        token_s = 1 / rate + speed.quad_s_per_token2 * prompt_tokens
        work_tokens = uncached * weight + CROWDING * candidate.recent_tokens
        cost_s = speed.base_s + candidate.queued_tokens / rate + work_tokens * token_s
        full = candidate.kv_use
        if full:
            full = FULLEST if full > FULLEST else full
            cost_s += speed.itl_s * full / (1 - full) * answer
        if candidate.adapter_load_s:
            cost_s += candidate.adapter_load_s * (1 + demand.behind) + candidate.adapter_evicts_s
        costs.append(cost_s)
    return costs


def behind(candidates: Sequence[Candidate], usual_tokens: float) -> float:
    """How many requests wait at an average endpoint, where one usually queues as `usual_tokens`. O(candidates).

    No more than are there at all: one prompt that takes minutes is not a long queue.
    """
    if usual_tokens <= 0:
        return 0.0
    waiting = 0.0
    for candidate in candidates:
        queued = candidate.queued_tokens
        if queued:  # most have nothing, in a fleet of hundreds
            waiting += min(queued / usual_tokens, candidate.queued_requests)
    return waiting / len(candidates)


def expected_cached_tokens(matched_tokens: int, prompt_tokens: int, block_size: int) -> int:
    """What an engine can reuse of `matched_tokens` leading tokens, in whole blocks of `block_size`.

    A prompt is never reused whole: engines compute at least its last token, so a full match of n tokens gives
    floor((n - 1) / block) blocks (vLLM's rule).
    """
    most = prompt_tokens - 1 if prompt_tokens > 0 else 0
    reusable = matched_tokens if matched_tokens < most else most
    return reusable - reusable % block_size
