"""Whether one endpoint is to compute a prompt and another its answer, in seconds. Pure.

    split      wait + prefill + ... at P      transfer + wait at D         D's answers
    unsplit    wait + prefill + ... at U      what U's answers stand still    U's answers

    P         who computes prompts for others: chosen by the cost of any prompt (`cost.py`), so by its prefixes
    D         who answers: what is not in its cache yet is carried there, and it must have room for one more answer
    transfer  = base + carried / rate               learned from the time between a decode leg's sending and first token
    answers   = expected output * more * requests   what each answer under way makes the steps longer for ours
    stall     = work / 8 * requests                 computing here holds up the answers that are made here

The last is why prompts are split at all. An engine computes a prompt in the steps in which its other answers get
tokens, so that each of those waits about as long as that takes; but who reads an answer reads six tokens a second of
the fifty that come, so only about an eighth of that is waited for by anybody.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from backends import PerfModel
from gateway.scheduling.cost import FULLEST, PRESSURE, terms_of
from gateway.scheduling.plain import at_random
from gateway.scheduling.types import Candidate, Demand, SplitPart, SplitTerms

STALL: Final = 1 / 8
"""Seconds that a reader waits for each second in which an answer stands still."""
USUAL_BATCH: Final = 128
"""So many answers at a time make a step twice as long as one alone does, where nobody knows better: a model of 8
billion parameters in 16 bits reads 16 GB a step, and 128 caches of 1,000 tokens as much again."""


def carried_tokens(candidate: Candidate, demand: Demand) -> int:
    """Tokens of the prompt that must be carried to who answers."""
    return max(demand.prompt_tokens - int(candidate.cached_tokens), 0)


def cheapest_decode(
    candidates: Sequence[Candidate],
    demand: Demand,
    transfer_of: Callable[[str], PerfModel],
    near_tie_s: float,
    chance: float,
) -> Candidate:
    """Who answers: least seconds, by chance among near-ties so that replicas do not herd. O(candidates).

    `candidates` must not be empty; `chance` is uniform in [0, 1).
    """
    costs_s = [sum(decode_terms_s(one, demand, transfer_of(one.endpoint_id))) for one in candidates]
    worst_s = min(costs_s) + near_tie_s
    return at_random([one for one, cost_s in zip(candidates, costs_s, strict=True) if cost_s <= worst_s], chance)


def decode_terms_s(candidate: Candidate, demand: Demand, transfer: PerfModel) -> tuple[float, float, float]:
    """Transfer, wait (an adapter that is loaded first is a part of it) and answers at who answers."""
    speed = candidate.speed
    full = min(candidate.kv_use or 0.0, FULLEST)
    pressure_s = PRESSURE * speed.itl_s * full / (1 - full) * demand.expected_output_tokens
    carried_s = transfer.prefill_s(carried_tokens(candidate, demand), demand.prompt_tokens)
    loading_s = candidate.adapter_load_s + candidate.adapter_evicts_s
    return carried_s, speed.wait_s(candidate.queued_tokens) + pressure_s + loading_s, answers_s(candidate, demand)


def answers_s(candidate: Candidate, demand: Demand) -> float:
    """What the answers under way make ours longer by."""
    speed = candidate.speed
    more_s = speed.itl_s_per_request or speed.itl_s / USUAL_BATCH
    return demand.expected_output_tokens * more_s * candidate.queued_requests


def split_terms(
    prefill: tuple[Candidate, Demand],
    decode: tuple[Candidate, PerfModel],
    unsplit: tuple[Candidate, Demand] | None,
) -> SplitTerms:
    """Both sides: P and D with the demand as P's pool sees it, and the one endpoint that would do both."""
    at, demand = prefill
    transfer_s, decode_wait_s, ours_s = decode_terms_s(decode[0], demand, decode[1])
    # An answer of one token is all that is decoded there.
    terms = SplitTerms(
        prefill_s=terms_of(at, replace(demand, expected_output_tokens=1)).cost_s,
        transfer_s=transfer_s,
        decode_wait_s=decode_wait_s,
        answers_s=ours_s,
    )
    if unsplit is None:
        return terms
    alone, asked = unsplit
    seen = terms_of(alone, asked)
    return replace(
        terms,
        unsplit_s=seen.cost_s,
        unsplit_stall_s=STALL * (seen.prefill_s - alone.speed.base_s) * alone.queued_requests,
        unsplit_answers_s=answers_s(alone, asked),
    )


def as_handed_over(candidate: Candidate, prompt_tokens: int, expected_cached_tokens: int) -> Candidate:
    """Who answers, once it has been handed the prompt: nothing is left to compute, and the cached tokens to be expected
    are those of who computed it."""
    return replace(
        candidate,
        cached_tokens=float(prompt_tokens),
        expected_cached_tokens=expected_cached_tokens,
        at_best=False,
        matched_tokens=candidate.known_tokens,
    )


def in_short(part: SplitPart) -> str:
    """In words: who computes the prompt, and what that saves."""
    terms, name = part.terms, part.prefill.endpoint_id
    alone_s = terms.unsplit_cost_s
    if alone_s is None:
        return f"{name} computes the prompt, since nobody can do both"
    return f"{name} computes the prompt, which saves {alone_s - terms.split_cost_s:.3f} of {alone_s:.3f} s"


def as_json(part: SplitPart) -> dict[str, object]:
    """Plain data; seconds and tokens."""
    terms = part.terms
    return {
        "prefill_endpoint": part.prefill.endpoint_id,
        "reason": part.reason.value,
        "carried_tokens": part.carried_tokens,
        "expected_cached_tokens": part.prefill.expected_cached_tokens,
        "split_cost_s": terms.split_cost_s,
        "unsplit_cost_s": terms.unsplit_cost_s,
        "terms": msgspec.structs.asdict(terms),
    }
