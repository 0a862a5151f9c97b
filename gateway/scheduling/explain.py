"""A decision in words and plain data, short enough to be kept by the thousand. Pure.

    500 candidates, 110 kB  ──shortened──>  the 16 of least cost and the chosen one, and how many more there were
    500 filtered, 70 kB     ─────────────>   16 of them, and how many more for each reason

Who was cheap enough to have been chosen is what an explanation is about; of the rest the number is told.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from gateway.scheduling.cost import terms_of
from gateway.scheduling.hindsight import with_costs
from gateway.scheduling.splitting import as_json as split_as_json
from gateway.scheduling.splitting import in_short
from gateway.scheduling.types import Candidate, Decision, Filtered
from gateway.types import Reason

MOST_SHOWN: Final = 16
"""Candidates that are kept beside the chosen one, and endpoints that were filtered."""

REASON_WORDS: Final[Mapping[Reason, str]] = {
    Reason.PREFIX_HIT: "no endpoint that could be chosen is known to hold more of the prompt",
    Reason.PREFIX_ELSEWHERE: "another endpoint holds more of the prompt, but would have cost more seconds",
    Reason.CHEAPER: "another endpoint would have been a little quicker, and costs more an hour",
    Reason.PREFIX_COPIED: "many ask for this prefix and have waited longer than one more copy takes, so one is made",
    Reason.NO_PREFIX: "no endpoint is known to hold the first block of the prompt",
    Reason.SHORT_PROMPT: "the prompt has no whole block that could be reused",
    Reason.POLICY: "the policy in force does not look at prefixes",
    Reason.UNSUPPORTED_CONTENT: "the prompt has a part whose tokens are not known here, so it was sent by load",
    Reason.NOT_TOKENIZED: "the prompt could not be turned into token ids, so it was sent by load",
    Reason.ENGINE_ALTERS: "a field makes the engine read other tokens than the messages say, so it was sent by load",
    Reason.PROMPT_BATCH: "there are several prompts in the request, so it was sent by load",
    Reason.PREVIOUS_RESPONSE: "it continues a response whose tokens only its engine knows",
    Reason.NO_KV: "it leaves nothing in a cache and finds nothing there, so it was sent by load",
    Reason.NO_DECISION: "nobody could take the request",
}

FILTERED_WORDS: Final[Mapping[Filtered, str]] = {
    Filtered.UNHEALTHY: "it is down, or was not heard of lately",
    Filtered.DRAINING: "it is being drained",
    Filtered.FAILED: "it was tried for this request and failed",
    Filtered.STARTING: "it is new, and had its share of requests for now",
    Filtered.PROBING: "it failed lately, and others are trying it",
    Filtered.STALLED: "requests wait there and nothing moves",
    Filtered.EJECTED: "it does far worse than its peers",
    Filtered.PREFILLS: "it computes prompts for others, and answers nobody",
    Filtered.NO_SALT: "its engine cannot keep share groups apart",
    Filtered.NOT_SPOKEN: "its engine does not take this kind of request, and it cannot be translated",
    Filtered.FULL: "it has as much in flight as it takes, or the request waited and it was another endpoint's turn",
    Filtered.NOT_OWNER: "the request continues a response that another endpoint keeps",
}


class Shortened(msgspec.Struct, frozen=True):
    """A decision with the candidates that matter, cheapest first, and how many were left out.

    `least_left_out_s` is the least cost among those, None where nobody was.
    """

    decision: Decision
    left_out: int
    least_left_out_s: float | None
    filtered_left_out: Mapping[Filtered, int]


def is_short(decision: Decision, most: int = MOST_SHOWN) -> bool:
    """Whether nothing needs to be left out of it to keep it."""
    return len(decision.candidates) <= most >= len(decision.filtered) and decision.observed is None


def shortened(decision: Decision, most: int = MOST_SHOWN) -> Shortened:
    """Leave out all but the `most` cheapest, the chosen one, and the one that another policy would have chosen.

    O(candidates log candidates), most of it in C.
    """
    costs, chosen, observed = with_costs(decision).costs_s, decision.chosen, decision.observed
    order = sorted(range(len(costs)), key=costs.__getitem__)
    kept = {decision.candidates[at].place: decision.candidates[at] for at in order[:most]}
    for candidate in (chosen,) if observed is None else (chosen, observed.chosen):
        kept.setdefault(candidate.place, candidate)
    left_out = [at for at in order[most:] if decision.candidates[at].place not in kept]
    short = replace(
        decision,
        candidates=tuple(kept.values()),
        filtered=dict(islice(decision.filtered.items(), most)),
        costs_s=(),
        observed=None if observed is None else replace(observed, candidates=(), filtered={}, costs_s=()),
    )
    unnamed = Counter(islice(decision.filtered.values(), most, None))
    return Shortened(short, len(left_out), costs[left_out[0]] if left_out else None, dict(unnamed))


def as_json(short: Shortened) -> dict[str, object]:
    """Plain data: terms in seconds, what they come from, who was left out. Names of terms are those of `Terms`."""
    decision = short.decision
    return {
        "endpoint": decision.endpoint_id,
        "rank": decision.chosen.rank,
        "reason": decision.reason.value,
        "why": in_words(short),
        "expected_cached_tokens": decision.expected_cached_tokens,
        "uncached_tokens": decision.uncached_tokens,
        "expected_output_tokens": decision.demand.expected_output_tokens,
        "behind": decision.demand.behind,
        "wanted_again": decision.demand.wanted_again,
        "terms": {candidate.place: _terms(candidate, decision) for candidate in decision.candidates},
        "candidates": {candidate.place: _facts(candidate) for candidate in decision.candidates},
        **_observed(decision),
        **({} if decision.split is None else {"split": split_as_json(decision.split)}),
        "others": {"count": short.left_out, "least_cost_s": short.least_left_out_s},
        "filtered": {name: why.value for name, why in decision.filtered.items()},
        "filtered_others": {why.value: count for why, count in short.filtered_left_out.items()},
        "filtered_why": {
            why.value: FILTERED_WORDS[why] for why in {*decision.filtered.values(), *short.filtered_left_out}
        },
    }


def in_words(short: Shortened) -> str:
    """Why the chosen endpoint: by its prefix, and by its cost among the others."""
    decision = short.decision
    why = REASON_WORDS[decision.reason]
    if decision.split is not None:
        return f"{why}; {in_short(decision.split)}"
    if len(decision.candidates) == 1:
        return f"{why}; no other endpoint could take the request"
    ours_s = _cost_s(decision.chosen, decision)
    others = (c for c in decision.candidates if c.place != decision.place)
    least_s, name = min((_cost_s(candidate, decision), candidate.place) for candidate in others)
    if ours_s <= least_s:
        return f"{why}; it costs {ours_s:.3f} s, {least_s - ours_s:.3f} s less than the next, {name}"
    return f"{why}; it costs {ours_s:.3f} s, {ours_s - least_s:.3f} s more than the cheapest, {name}"


def _observed(decision: Decision) -> dict[str, object]:
    """What the policy that is only watched would have done."""
    observed = decision.observed
    if observed is None:
        return {}
    return {
        "observed": {
            "endpoint": observed.endpoint_id,
            "rank": observed.chosen.rank,
            "reason": observed.reason.value,
            "expected_cached_tokens": observed.expected_cached_tokens,
            "uncached_tokens": observed.uncached_tokens,
        }
    }


def _cost_s(candidate: Candidate, decision: Decision) -> float:
    return terms_of(candidate, decision.demand).cost_s


def _terms(candidate: Candidate, decision: Decision) -> dict[str, float | bool]:
    terms = terms_of(candidate, decision.demand)
    return {**asdict(terms), "cost_s": terms.cost_s, "at_best": candidate.at_best}


def _facts(candidate: Candidate) -> dict[str, object]:
    """What the terms were computed from."""
    return {
        "matched_tokens": candidate.known_tokens,
        "survival": candidate.survival,
        "cached_tokens": candidate.cached_tokens,
        "expected_cached_tokens": candidate.expected_cached_tokens,
        "queued_tokens": candidate.queued_tokens,
        "queued_requests": candidate.queued_requests,
        "recent_tokens": candidate.recent_tokens,
        "kv_use": candidate.kv_use,
        "adapter_load_s": candidate.adapter_load_s,
        "adapter_evicts_s": candidate.adapter_evicts_s,
        "speed": dataclasses.asdict(candidate.speed),
    }
