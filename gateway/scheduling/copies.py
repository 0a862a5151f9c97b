"""Copies of hot prefixes, made on purpose: rent until the rent has paid the price, then buy. Pure.

    a request of a prefix           its share of the last requests x endpoints > holders?   no: it is not hot
        │ yes                                                                    ▼
        rent   cost where it goes - cost at the cheapest other if it had the prefix too    summed, fading
        price  what computing the prefix costs there
        rent so far > price: this request goes there, and the sum begins anew

A request that finds its prefix's holders busy compares its own wait with the computation of the prefix, and rightly
waits. The thousand that do the same pay a thousand waits for the want of one copy, which none of them would make. So
the waits of all are summed; to buy once they come to the price costs at most twice what a seer would have paid.

Of a fleet where all holders are as busy as everybody, no copy helps: there is work, not a hot prefix. A prefix needs
more holders where its share of the requests is more than that of its holders among the endpoints. Without this rule
the 150 groups of llm-d's ladder, which nearly fill the caches, evicted each other in bursts: 3 points of hits lost.

The prefix of a request is the longest beginning that a candidate has: of prompts with a common beginning that is where
they part, of a conversation its last turn, which is never hot since nobody else has it.

Costs: O(1) a request and one pass over the candidates; `MOST_PREFIXES` names of 8 bytes with three numbers each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.scheduling.cost import costs_s
from gateway.scheduling.question import Chooser, Question
from gateway.scheduling.types import Candidate, Decision, Demand
from gateway.types import Reason
from prefix_index import HASH_BYTES, Chain

WINDOW_REQUESTS: Final = 128
"""After so many requests of all, one counts 1/e. With 512, prefixes that are new every 20 s are found too late (a TTFT
of 1.7 s rather than 0.6 s on average); with 64 nothing is won."""
MOST_PREFIXES: Final = 4096
LEAST_REQUESTS: Final = 4
"""Fewer lately are no rate."""


@dataclass(slots=True)
class _Prefix:
    """What is known of one prefix as of request number `at`; `copies` are the places that it was copied to."""

    at: int
    requests: float = 0.0
    rent_s: float = 0.0
    copies: tuple[str, ...] = ()


class RecentShares:
    """How large a share of the last requests each name has: forward, fading by requests. Bounded: what was not named
    for longest is forgotten, and names so rare have no share to speak of."""

    def __init__(self, window: float = WINDOW_REQUESTS, most: int = MOST_PREFIXES) -> None:
        self._window = window
        self._most = most
        self._fade = math.exp(-1 / window)
        self._prefixes: dict[bytes, _Prefix] = {}
        self._all = 0.0
        self._number = 0

    def __len__(self) -> int:
        return len(self._prefixes)

    def pass_by(self) -> None:
        """A request without a name."""
        self._number += 1
        self._all = self._all * self._fade + 1

    def note(self, name: bytes) -> _Prefix:
        """A request of that name; what is known of it, as of now. O(1)."""
        self.pass_by()
        prefix = self._prefixes.pop(name, None) or _Prefix(self._number)
        fading = math.exp((prefix.at - self._number) / self._window)
        prefix.at, prefix.requests, prefix.rent_s = self._number, prefix.requests * fading + 1, prefix.rent_s * fading
        self._prefixes[name] = prefix  # behind all others
        if len(self._prefixes) > self._most:
            del self._prefixes[next(iter(self._prefixes))]
        return prefix

    def share_of(self, prefix: _Prefix) -> float:
        """Its share of the last requests, 0 to 1; of one that was noted last."""
        return prefix.requests / self._all


class _Places(msgspec.Struct, frozen=True):
    """The candidates as holders of a prefix and as those to copy it to."""

    holders: int
    chosen_s: float
    chosen_holds: bool
    old_holders_s: float
    """The least cost of those that hold it and were not made to; infinite where there is none."""
    empty: int | None
    """Where the cheapest stands that does not hold it."""


def copying(chooser: Chooser, shares: Callable[[], RecentShares] = RecentShares) -> Chooser:
    """`chooser`, which decides by cost, and copies of what is hot."""
    seen = shares()

    def choose(asked: Question) -> Decision:
        decision = chooser(asked)
        chain = asked.chain
        held_tokens = 0 if chain is None else max(candidate.known_tokens for candidate in decision.candidates)
        if chain is None or asked.no_affinity is not None or held_tokens < chain.block_size:
            seen.pass_by()
            return decision
        prefix = seen.note(_name(chain, held_tokens))
        needed = seen.share_of(prefix) * len(decision.candidates)
        if (needed <= 1 and not prefix.copies) or prefix.requests < LEAST_REQUESTS:
            return decision
        return _weighed(asked, decision, prefix, held_tokens, needed)

    return choose


def _weighed(asked: Question, decision: Decision, prefix: _Prefix, held_tokens: int, needed: float) -> Decision:
    places = _places(decision, prefix, held_tokens)
    if not places.chosen_holds:  # a copy comes about by itself
        prefix.rent_s = 0.0
        return decision
    if decision.place in prefix.copies and places.old_holders_s < math.inf:
        decision = replace(decision, copy_saved_s=max(places.old_holders_s - places.chosen_s, 0.0))
    if places.empty is None or places.holders >= needed:
        return decision
    to, to_s = decision.candidates[places.empty], decision.costs_s[places.empty]
    with_it_s = _cost_if_held(to, held_tokens, decision.demand)
    prefix.rent_s += max(places.chosen_s - with_it_s, 0.0)
    price_s = to_s - with_it_s
    if prefix.rent_s <= price_s:
        return decision
    prefix.rent_s = 0.0
    prefix.copies = (*(name for name in prefix.copies if name != to.place), to.place)
    refined = asked.refine(to) if to.at_best else to
    return replace(decision, chosen=refined, reason=Reason.PREFIX_COPIED, copy_cost_s=price_s, copy_saved_s=0.0)


def _places(decision: Decision, prefix: _Prefix, held_tokens: int) -> _Places:
    """Half of the prefix counts as having it: most of a copy is one. O(candidates)."""
    holders, empty, chosen_s, chosen_holds = 0, None, 0.0, False
    old_holders_s = empty_s = math.inf
    for at, (candidate, cost_s) in enumerate(zip(decision.candidates, decision.costs_s, strict=True)):
        holds = candidate.known_tokens * 2 > held_tokens
        if candidate.endpoint_id == decision.endpoint_id and candidate.rank == decision.chosen.rank:
            chosen_s, chosen_holds = cost_s, holds
        if holds:
            holders += 1
            if candidate.place not in prefix.copies:
                old_holders_s = min(old_holders_s, cost_s)
        elif cost_s < empty_s:
            empty, empty_s = at, cost_s
    return _Places(holders, chosen_s, chosen_holds, old_holders_s, empty)


def _cost_if_held(candidate: Candidate, tokens: int, demand: Demand) -> float:
    [cost_s] = costs_s([replace(candidate, cached_tokens=tokens)], demand)
    return cost_s


def _name(chain: Chain, tokens: int) -> bytes:
    """The hash of the last whole block within so many tokens."""
    blocks = min(tokens // chain.block_size, len(chain))
    return chain.hashes[(blocks - 1) * HASH_BYTES : blocks * HASH_BYTES]
