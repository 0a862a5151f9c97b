"""What the traffic of each kind of call shows: where its prompts part, how often, and what that costs. Bounded.

    tenant --> { model, route, set of tools } --> Profile
                                                   places    system, token 12: 840 times, 1,020,000 tokens, time
                                                             message 1 user: 90 times
                                                   sketches  of its last system prompts
                                                   tokens    how often at 0, 1, 2-3, 4-7, ... tokens

Hashes, offsets and numbers, no text. Everything has a bound: profiles in all and of a tenant, places and sketches of a
profile, causes and variants of a place. Where one is full, the place that lost least gives way, or the profile that was
quiet for longest; a tenant that floods its own can push out only its own, until there are more tenants than profiles.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gateway.divergence.sketches import Sketch, resemblance
from gateway.divergence.types import Change, Detail, Parting, ProfileName, Sign
from prefix_index.layout import Cause

MOST_PROFILES: Final = 4096
MOST_OF_TENANT: Final = 64
MOST_PLACES: Final = 16
"""Of a profile."""
MOST_SKETCHES: Final = 4
"""Of a part of a profile: so many prompts may take turns and be told apart."""
MOST_PIECES_KEPT: Final = 200_000
"""Of all sketches together, about 100 bytes each; the profile that learned longest ago forgets its own first."""
MOST_VARIANTS: Final = 32
"""System prompts, orders of tools of a profile that are known again."""
MOST_TOOLS: Final = 128
MOST_CAUSES: Final = 8
_BUCKETS: Final = 24
LOOKED_AT_FIRST: Final = 16
"""So many partings of a place are looked at closely ..."""
LOOKED_AT_EVERY: Final = 32
"""... and then one in so many."""
CAUSE_EVERY: Final = 4
"""One look in so many, after the first, also asks for the cause."""


class PlaceCount(msgspec.Struct):
    """Partings in one part of the prompts of a profile. Times in seconds since 1970."""

    change: Change
    segment: str
    first_s: float
    of_before: int
    """Requests of the profile before the first."""
    tokens: tuple[int, int]
    """The least and the most at which they parted."""
    offsets: tuple[int, int] | None = None
    """The same of characters of the part; None where nobody looked."""
    last_s: float = 0.0
    requests: int = 0
    lost_tokens: int = 0
    looked: int = 0
    equal_share: float | None = None
    """Of what stands behind the change within its part: how much was there before, on average."""
    causes: dict[Cause, int] = {}
    cause: Cause | None = None
    """What was found most; None where nobody looked."""

    def wants_look(self) -> bool:
        """Whether the next parting is to be looked at closely."""
        return self.looked < LOOKED_AT_FIRST or self.requests % LOOKED_AT_EVERY == 0

    def wants_schemas(self) -> bool:
        """Whether it is worth writing out all tools to see which have changed: 3 µs a KB."""
        return self.requests < LOOKED_AT_FIRST or self.requests % LOOKED_AT_EVERY == 0

    def wants_cause(self) -> bool:
        """Whether the next look is to find the cause, too: it takes as long as all the rest."""
        return self.looked < LOOKED_AT_FIRST or self.looked % CAUSE_EVERY == 0

    def add(self, parting: Parting, now_s: float) -> None:
        """One more."""
        self.requests += 1
        self.last_s = now_s
        self.lost_tokens += parting.lost_tokens
        self.tokens = _widened(self.tokens, parting.token)
        if parting.detail is not None:
            self._look(parting.detail)

    def _look(self, detail: Detail) -> None:
        self.looked += 1
        share = 0.0
        if detail.offset is not None:
            self.offsets = _widened(self.offsets, detail.offset)
            share = min(detail.equal_chars / max(detail.sketch.chars - detail.offset, 1), 1.0)
        if detail.likened is not None:  # else there was nothing to compare with
            self.equal_share = share if self.equal_share is None else self.equal_share + (share - self.equal_share) / 8
        if detail.cause is not None and (detail.cause in self.causes or len(self.causes) < MOST_CAUSES):
            self.causes[detail.cause] = self.causes.get(detail.cause, 0) + 1
            self.cause = max(self.causes, key=self.causes.__getitem__)


class Tools(msgspec.Struct):
    """The tools of a profile as they came last: a hash of each by its name, and how many characters they are."""

    schemas: dict[str, int]
    chars: int
    equal_share: float = 0.0
    """How many of them were as before when they had changed last."""


class Profile(msgspec.Struct):
    """One kind of call."""

    name: ProfileName
    requests: int = 0
    begun: int = 0
    """Requests that continued no earlier one."""
    at_tokens: list[int] = msgspec.field(default_factory=lambda: [0] * _BUCKETS)
    places: dict[str, PlaceCount] = {}
    """By `place_key`."""
    sketches: dict[str, list[Sketch]] = {}
    systems: OrderedDict[int, int] = msgspec.field(default_factory=OrderedDict)
    """System prompts that came last, each with how often."""
    new_systems: int = 0
    """How often one came that was not among them."""
    tools: Tools | None = None

    def place(self, change: Change, segment: str) -> PlaceCount | None:
        """What is known of a place."""
        return self.places.get(place_key(change, segment))

    def likeliest(self, segment: str, pieces: Sequence[str]) -> Sketch | None:
        """The sketch of a part that has most in common with `pieces`, the latest of several."""
        kept = self.sketches.get(segment, ())
        return max(reversed(kept), key=lambda sketch: resemblance(pieces, sketch), default=None)

    def add(self, parting: Parting, now_s: float) -> None:
        """A request parted."""
        change, segment = parting.change, place_name(parting)
        found = self.places.get(place_key(change, segment))
        if found is None:
            token = parting.token
            found = self._new_place(PlaceCount(change, segment, now_s, self.requests, (token, token), causes={}))
        found.add(parting, now_s)
        self.at_tokens[min(parting.token.bit_length(), _BUCKETS - 1)] += 1

    def learn(self, segment: str, detail: Detail) -> None:
        """Remember how a part reads now, in place of what it was likened to, if that is what it was before."""
        kept = self.sketches.setdefault(segment, [])
        likened = detail.likened
        if likened is not None and (detail.offset is not None or likened.pieces == detail.sketch.pieces):
            kept[:] = [sketch for sketch in kept if sketch is not likened]
        kept.append(detail.sketch)
        del kept[:-MOST_SKETCHES]

    @property
    def pieces(self) -> int:
        """Of all its sketches."""
        return sum([len(sketch.pieces) for kept in self.sketches.values() for sketch in kept])

    def saw_system(self, system: int) -> None:
        """Count a system prompt by its hash."""
        known = self.systems.pop(system, 0)
        self.systems[system] = known + 1
        if not known:
            self.new_systems += 1
            if len(self.systems) > MOST_VARIANTS:
                self.systems.popitem(last=False)

    def _new_place(self, count: PlaceCount) -> PlaceCount:
        if len(self.places) >= MOST_PLACES:
            rarest = min(self.places, key=lambda name: (self.places[name].lost_tokens, self.places[name].requests))
            del self.places[rarest]
        self.places[place_key(count.change, count.segment)] = count
        return count

    def parted_at(self) -> dict[int, int]:
        """How many prompts parted from how many tokens on, up to twice as many; none of those with none."""
        return {1 << place >> 1: count for place, count in enumerate(self.at_tokens) if count}

    def signs(self) -> Iterator[Sign]:
        """What is known of each place."""
        for count in self.places.values():
            yield Sign(
                name=self.name,
                change=count.change,
                segment=count.segment,
                requests=count.requests,
                of=max(self.requests - count.of_before, count.requests),
                lost_tokens=count.lost_tokens,
                tokens=count.tokens,
                offsets=count.offsets,
                causes=dict(count.causes),
                first_s=count.first_s,
                last_s=count.last_s,
                variants=self.new_systems,
            )


class Profiles:
    """The profiles of all tenants. O(1) a call."""

    def __init__(self, most: int = MOST_PROFILES, most_of_tenant: int = MOST_OF_TENANT) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._tenants: OrderedDict[str, OrderedDict[ProfileName, Profile]] = OrderedDict()
        self._sketched: OrderedDict[ProfileName, int] = OrderedDict()
        self._count = 0
        self.pieces_kept = 0

    def __len__(self) -> int:
        """How many profiles there are."""
        return self._count

    def find(self, name: ProfileName) -> Profile | None:
        """A profile, where there is one."""
        of_tenant = self._tenants.get(name.tenant)
        return None if of_tenant is None else of_tenant.get(name)

    def of(self, name: ProfileName) -> Profile:
        """A profile, now the one that was seen last."""
        of_tenant = self._tenants.get(name.tenant)
        if of_tenant is None:
            of_tenant = self._tenants[name.tenant] = OrderedDict()
        self._tenants.move_to_end(name.tenant)
        found = of_tenant.get(name)
        if found is not None:
            of_tenant.move_to_end(name)
            return found
        made = of_tenant[name] = Profile(name, places={}, sketches={})
        self._count += 1
        if len(of_tenant) > self._most_of_tenant:
            self._forget(name.tenant)
        while self._count > self._most:
            self._forget(next(iter(self._tenants)))
        return made

    def sketched(self, profile: Profile) -> None:
        """A profile has learned how a part reads; the one that did so longest ago forgets."""
        pieces = profile.pieces
        self.pieces_kept += pieces - self._sketched.pop(profile.name, 0)
        self._sketched[profile.name] = pieces
        while self.pieces_kept > MOST_PIECES_KEPT:
            name, forgotten = self._sketched.popitem(last=False)
            self.pieces_kept -= forgotten
            other = self.find(name)
            if other is not None:
                other.sketches.clear()

    def all(self) -> Iterator[Profile]:
        """Every profile."""
        for of_tenant in self._tenants.values():
            yield from of_tenant.values()

    def _forget(self, tenant: str) -> None:
        of_tenant = self._tenants[tenant]
        name, _ = of_tenant.popitem(last=False)
        self.pieces_kept -= self._sketched.pop(name, 0)
        self._count -= 1
        if not of_tenant:
            del self._tenants[tenant]


def _widened(span: tuple[int, int] | None, value: int) -> tuple[int, int]:
    """The least and the most, one more value seen."""
    if span is None:
        return value, value
    return span if span[0] <= value <= span[1] else (min(span[0], value), max(span[1], value))


def place_name(parting: Parting) -> str:
    """What partings are counted under: messages of the midst of a conversation are one place."""
    change, segment = parting.change, parting.segment
    if change is Change.HISTORY or change is Change.WINDOW:
        return "history"
    if (change is Change.MESSAGE or change is Change.GROWN) and not segment.startswith("message 1"):
        return "later messages"
    return segment


def place_key(change: Change, segment: str) -> str:
    """One text, since an enumeration's members are slow to hash."""
    return change + segment
