"""Who belongs to the fleet, by what all sources say: pure, given the time.

    listings, in order of precedence          wanted                       members
      admin   [http://a:80 "one"]        +->  one  http://a   admin, dns    one    here
      dns     [http://a, http://b]       |    b-80 http://b   dns           b-80   here
                 `-- the same address ---+                                  c-80   left 12 s ago: purged after grace

Invariants:
- An address is one endpoint, however many list it; its id is that of the first source which lists it. So what is wanted
  is a function of what the sources say now, and whoever hears the same comes to the same ids. Only who stays where
  there are too many depends on who was there before.
- An id at another address, or with other settings, is another endpoint: it moves.
- Who is not wanted leaves at once, and is purged once it has been gone for `grace_s` and nothing is under way there.
- Who is draining is not taken in, and no member is lost for it.
- There are at most `most` that are wanted, and as many again that have left: beyond, who left first goes early.

Costs: `plan` O(endpoints log endpoints) after a change, 3 ms for a thousand of them; else O(those that have left).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from backends.discovery.names import name_of_url, normal_url, with_digest
from backends.discovery.types import Found


@dataclass(frozen=True, slots=True)
class Wanted:
    """One endpoint that is to be in the fleet. `found` is what the first of its `sources` says, and `draining` what any
    of them does: a pod that ends does so also where a file lists it."""

    id: str
    sources: tuple[str, ...]
    found: Found
    draining: bool

    def is_other_than(self, before: "Wanted") -> bool:
        """Whether it is to be reached in another way."""
        return (normal_url(self.found.url), self.sources[0], self.found.settings) != (
            *(normal_url(before.found.url), before.sources[0], before.found.settings),
        )


@dataclass(frozen=True, slots=True)
class Join:
    """A new endpoint."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class ComeBack:
    """One that had left, and was not purged yet."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Move:
    """Another address or other settings under an id that is known."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Hold:
    """It is to get no new requests, or again."""

    id: str
    held: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """No source lists it any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Forget it."""

    id: str


Action = Join | ComeBack | Move | Hold | Leave | Purge


@dataclass(slots=True)
class _Member:
    wanted: Wanted
    left_at_s: float | None = None


class Membership:
    """The members, and what is to be done so that they are those that are wanted.

    What `plan` returns must be done, in order: it is taken for done.
    """

    def __init__(self, order: Sequence[str], *, grace_s: float, most: int) -> None:
        """`order` names all sources, the one that gives names first comes first. What that one lists twice, under two
        names, is two endpoints: it is the operator's own list."""
        self._listings: dict[str, Sequence[Found]] = dict.fromkeys(order, ())
        self._grace_s = grace_s
        self._most = most
        self._members: dict[str, _Member] = {}
        self._left: set[str] = set()
        self._is_settled = False
        """Whether nothing but purges may follow from what is known."""
        self.refused = 0
        """Endpoints that found no place when `plan` was last called."""

    def take(self, source: str, listing: Sequence[Found]) -> None:
        """What a source has now."""
        self._listings[source] = tuple(listing)
        self._is_settled = False

    def member(self, endpoint_id: str) -> Wanted | None:
        """What is known of a member, also of one that has left."""
        found = self._members.get(endpoint_id)
        return None if found is None else found.wanted

    def has_left(self, endpoint_id: str) -> bool:
        """Whether no source lists it any more."""
        found = self._members.get(endpoint_id)
        return found is not None and found.left_at_s is not None

    def at(self, url: str) -> Wanted | None:
        """Who is at an address now. O(members)."""
        url = normal_url(url)
        here = (one.wanted for one in self._members.values() if one.left_at_s is None)
        return next((wanted for wanted in here if normal_url(wanted.found.url) == url), None)

    def members(self) -> Sequence[str]:
        """Ids of all, also of those that have left."""
        return tuple(self._members)

    def plan(self, now_s: float, is_busy: Callable[[str], bool]) -> list[Action]:
        """What is to be done now; `is_busy` says whether something is under way at an endpoint."""
        actions: list[Action] = []
        if not self._is_settled:
            addresses = {name: normal_url(member.wanted.found.url) for name, member in self._members.items()}
            wanted, self.refused = merged(self._listings, addresses, self._most)
            actions += self._leaving(wanted, now_s)
            for one in wanted.values():
                actions += self._here(one)
        purges = self._purges(now_s, is_busy)
        # Who found no place before may find one now.
        self._is_settled = not actions and not (purges and self.refused)
        return [*actions, *purges]

    def _here(self, wanted: Wanted) -> list[Action]:
        member = self._members.get(wanted.id)
        if member is None:
            self._members[wanted.id] = _Member(wanted)
            return [Join(wanted)]
        before, member.wanted = member.wanted, wanted
        actions: list[Action] = []
        if member.left_at_s is not None:
            member.left_at_s = None
            self._left.discard(wanted.id)
            actions.append(ComeBack(wanted))
        if wanted.is_other_than(before):
            actions.append(Move(wanted))
        if wanted.draining != before.draining:
            actions.append(Hold(wanted.id, wanted.draining))
        return actions

    def _leaving(self, wanted: Mapping[str, Wanted], now_s: float) -> list[Action]:
        actions: list[Action] = []
        for endpoint_id in self._members.keys() - wanted.keys() - self._left:
            self._members[endpoint_id].left_at_s = now_s
            self._left.add(endpoint_id)
            actions.append(Leave(endpoint_id))
        return actions

    def _purges(self, now_s: float, is_busy: Callable[[str], bool]) -> list[Action]:
        actions: list[Action] = []
        too_many = len(self._left) - self._most
        for left_at_s, endpoint_id in sorted((self._members[one].left_at_s or 0.0, one) for one in self._left):
            if (now_s - left_at_s >= self._grace_s or too_many > 0) and not is_busy(endpoint_id):
                too_many -= 1
                del self._members[endpoint_id]
                self._left.discard(endpoint_id)
                actions.append(Purge(endpoint_id))
        return actions


def merged(
    listings: Mapping[str, Sequence[Found]], members: Mapping[str, str], most: int
) -> tuple[dict[str, Wanted], int]:
    """One entry an address, by id, and how many found no place; members go first. Who drains and is none is left out.

    `listings` are in order of precedence, `members` the addresses of those that are there, by id.
    """
    by_url: dict[str, Wanted] = {}
    first = next(iter(listings), None)
    for source, listing in listings.items():
        for found in listing:
            url = normal_url(found.url)
            if url in by_url and by_url[url].sources == (first,) == (source,):
                url += f" {found.id}"
            known = by_url.get(url)
            if known is None:
                name = found.id or name_of_url(found.url)
                by_url[url] = Wanted(name, (source,), found, found.draining)
            elif source not in known.sources:
                by_url[url] = replace(
                    known, sources=(*known.sources, source), draining=known.draining or found.draining
                )
    by_id: dict[str, Wanted] = {}
    for url, wanted in by_url.items():
        endpoint_id = with_digest(wanted.id, url) if wanted.id in by_id else wanted.id
        if not wanted.draining or members.get(endpoint_id) == normal_url(wanted.found.url):
            by_id[endpoint_id] = replace(wanted, id=endpoint_id)
    if len(by_id) <= most:
        return by_id, 0
    kept = sorted(by_id, key=lambda endpoint_id: endpoint_id not in members)[:most]
    return {endpoint_id: by_id[endpoint_id] for endpoint_id in kept}, len(by_id) - most
