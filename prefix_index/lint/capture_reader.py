"""Requests in the order in which they were sent: each against the earlier ones that it could have continued.

    for each request, of its key and model:
        earlier ones, latest first -> the longest head in common -> why they part (capture_rules) -> a finding
    the same fault in many requests is one finding, with how many of how many

Cost: each request is compared with `WINDOW` earlier ones, by units; texts are looked into only where two part.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from prefix_index.layout import Certainty, spots
from prefix_index.lint.capture_rules import Pair, Seen, explained
from prefix_index.lint.captures import Kind, Request, Unit, digest, same_units
from prefix_index.lint.parts import tokens_of
from prefix_index.lint.rules import BEFORE_FIXED, MODEL_FLIP, SALT, SCHEMA_CHANGE, UNDER_BLOCK, UNDER_MINIMUM
from prefix_index.lint.types import Asked, Every, Finding, Level, Place, Rule

WINDOW: Final = 32
_CANDIDATES: Final = 4
"""Of those that have the longest head in common, so many are looked into."""
_SHOWN_CHARS: Final = 120
_COST_NOTHING: Final = (UNDER_BLOCK, UNDER_MINIMUM, SCHEMA_CHANGE)
"""Rules whose loss cannot be told in tokens."""


@dataclass(slots=True)
class Sums:
    """One fault, over all requests that have it."""

    first: Finding
    calls: int = 0
    lost_tokens: int = 0


@dataclass(slots=True)
class Captured:
    """Reads the requests of one file; `findings` are those of all so far."""

    path: str
    asked: Asked
    _counts: dict[str, int] = field(default_factory=dict)
    _sums: dict[tuple[str, str, str], Sums] = field(default_factory=dict)
    _earlier: dict[str, deque[Request]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=WINDOW)))
    _requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _heads: dict[tuple[str, str], list[Request]] = field(default_factory=dict)

    def add(self, request: Request) -> None:
        """One more request, later than all before."""
        self._requests[request.group] += 1
        earlier = self._earlier[request.group]
        same_model = [one for one in reversed(earlier) if one.model == request.model]
        others = [one for one in reversed(earlier) if one.model != request.model]
        self._salt(request, same_model)
        self._parting(request, same_model)
        self._other_model(request, same_model, others)
        head = "\0".join(unit.text for unit in request.head)
        if head:
            self._heads.setdefault((request.group, head), []).append(request)
        earlier.append(request)

    def findings(self) -> list[Finding]:
        """What was found, each fault once. After the last request."""
        for requests in self._heads.values():
            self._alone(requests[0], len(requests))
        return [self._summed(sums) for sums in self._sums.values()]

    def _parting(self, request: Request, earlier: Sequence[Request]) -> None:
        """Against those with the longest head in common; the first of them that a rule explains."""
        same = [(same_units(one.units, request.units), one) for one in earlier]
        best = max((count for count, _ in same), default=0)
        looked_into = [one for count, one in same if count == best][:_CANDIDATES]
        if any(best in (len(one.units), len(request.units)) for one in looked_into):
            self._schema(request, next(one for one in looked_into if best in (len(one.units), len(request.units))))
            return
        for one in looked_into:
            seen = explained(Pair(one, request, best, self._count, self.asked.block_tokens))
            if seen is not None:
                self._take(request, seen)
                return

    def _schema(self, request: Request, earlier: Request) -> None:
        if request.schema != earlier.schema and request.schema and earlier.schema:
            self._take(request, Seen(SCHEMA_CHANGE, Unit(Kind.SYSTEM, "response_format", "", request.schema)))

    def _salt(self, request: Request, earlier: Sequence[Request]) -> None:
        if not earlier or earlier[0].salt == request.salt or request.salt is None:
            return
        best = max(earlier, key=lambda one: same_units(one.units, request.units))
        count = same_units(best.units, request.units)
        lost = sum(self._count(unit.text) for unit in request.units[:count])
        if lost >= self.asked.block_tokens and all(one.salt != request.salt for one in earlier):
            self._take(request, Seen(SALT, Unit(Kind.SYSTEM, "cache_salt", "", request.salt), lost_tokens=lost))

    def _other_model(self, request: Request, earlier: Sequence[Request], others: Sequence[Request]) -> None:
        """The same prompt, or its next turn, under another name, where its own name has nothing of it yet."""
        for one in others:
            count = same_units(one.units, request.units)
            if count < len(one.units) or not count:
                continue
            if any(same_units(own.units, request.units) >= count for own in earlier):
                return
            lost = sum(self._count(unit.text) for unit in request.units[:count])
            if lost >= self.asked.block_tokens:
                note = f"{one.model} before, {request.model} now"
                self._take(request, Seen(MODEL_FLIP, Unit(Kind.SYSTEM, "model", "", request.model), 0, lost, note=note))
            return

    def _alone(self, request: Request, calls: int) -> None:
        """What one request says by itself: a head that is too short, a literal that would change."""
        head = [self._count(unit.text) for unit in request.head]
        system = [unit for unit in request.head if unit.kind is Kind.SYSTEM]
        if not any(unit.text.strip() for unit in system):
            return
        rule: Rule | None = None
        if sum(head) < self.asked.block_tokens:
            rule = UNDER_BLOCK
        elif sum(head) < self.asked.minimum_tokens:
            rule = UNDER_MINIMUM
        if rule is not None:
            self._take(request, Seen(rule, system[0], note=f"{sum(head)} tokens"), calls)
        if self._requests[request.group] == 1:
            self._literals(request, system)

    def _literals(self, request: Request, system: Sequence[Unit]) -> None:
        """Of a request that nothing can be compared with: what most likely changes, by its form."""
        for unit in system:
            for spot in spots(unit.text):
                rule = BEFORE_FIXED.get(spot.cause)
                lost = self._count(unit.text[spot.end :])
                if rule is not None and spot.certainty >= Certainty.LIKELY and lost >= self.asked.block_tokens:
                    note = "seen once: whether it changes, only a second request can tell"
                    seen = Seen(rule, unit, spot.start, lost, spot.cause, note=note)
                    self._take(request, seen, level=Level.NOTE)
                    return

    def _take(self, request: Request, seen: Seen, calls: int = 1, level: Level | None = None) -> None:
        lost = self.asked.whole_blocks(seen.lost_tokens)
        if not lost and seen.rule not in _COST_NOTHING:
            return
        key = (seen.rule.id, request.group, _kind_of(seen.unit.part))
        if key not in self._sums:
            place = Place(self.path, request.line, 1, seen.offset, request.number, seen.unit.part)
            self._sums[key] = Sums(
                Finding(
                    seen.rule,
                    place,
                    subject=self._subject(seen),
                    cause=seen.cause,
                    every=seen.every,
                    level=level or seen.rule.level,
                    prompt="/".join((self.path, *key)),
                    note=seen.note,
                    shown=seen.unit.text[seen.offset :][:_SHOWN_CHARS] if self.asked.show_text else "",
                )
            )
        self._sums[key].calls += calls
        self._sums[key].lost_tokens += lost * calls

    def _subject(self, seen: Seen) -> str:
        now = digest(seen.unit.text, self.asked.hash_key)
        return f"{digest(seen.before, self.asked.hash_key)} -> {now}" if seen.before else now

    def _summed(self, sums: Sums) -> Finding:
        of = sum(self._requests.values())
        lost = sums.lost_tokens // max(sums.calls, 1)
        never = sums.first.rule in _COST_NOTHING
        every = Every.CHANGE if never else sums.first.every
        return replace(sums.first, lost_tokens=None if never else lost, calls=sums.calls, of=of, every=every)

    def _count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = tokens_of(text, self.asked)
        return self._counts[text]


def _kind_of(part: str) -> str:
    """A part without its numbers: the same fault in `messages[3]` and `messages[5]` is one."""
    return "".join("#" if letter.isdigit() else letter for letter in part)
