"""Why a captured request did not continue an earlier one: one rule for each kind of place where two prompts part.

    tools       the same in another order, in other words, more or fewer
    system      a literal that changes; else: the first difference
    messages    examples or documents in another order, a head that was cut off, another image

What is new because something new is asked is no fault. A rule looks at two requests and at the unit where they part,
and says what it sees; None: nothing.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prefix_index.layout import Cause
from prefix_index.lint.captures import Kind, Request, Unit, texts
from prefix_index.lint.differences import cause_between, is_reordered, kept_tokens, moved_items, paragraphs, parted
from prefix_index.lint.images import same_picture
from prefix_index.lint.rules import (
    BEFORE_FIXED,
    DOCUMENTS,
    EXAMPLES,
    FIRST_DIFFERENCE,
    HISTORY_CHANGED,
    HISTORY_CUT,
    IMAGE,
    TOOL_DRIFT,
    TOOL_ORDER,
    TOOL_SET,
)
from prefix_index.lint.types import CountTokens, Every, Rule

_PARTS: Final = re.compile(r"\..*")
"""Behind the name of a message: which part of it."""
_SIMILAR: Final = 0.5
"""Two texts that have so much of the shorter in common are versions of one text."""
_LEAST_EXAMPLES: Final = 3
_OF_DOCUMENTS: Final = re.compile(
    r"document|passage|source|context|chunk|retriev|\[\d{1,3}\]|资料|文档|資料", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule sees: where the two part (`unit` of the later request, `offset` in it), and what could be kept."""

    rule: Rule
    unit: Unit
    offset: int = 0
    lost_tokens: int = 0
    cause: Cause | None = None
    every: Every = Every.CALL
    note: str = ""
    before: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """An earlier and a later request that part at unit `at`; both have one there."""

    earlier: Request
    later: Request
    at: int
    count: CountTokens
    block_tokens: int

    @property
    def units(self) -> tuple[Unit, Unit]:
        """The two that differ."""
        return self.earlier.units[self.at], self.later.units[self.at]

    def kept(self) -> int:
        """Tokens from here on that the earlier request had too, whatever their order."""
        return kept_tokens(texts(self.earlier.units[self.at :]), texts(self.later.units[self.at :]), self.count)

    def rest(self, kind: Kind) -> tuple[list[Unit], list[Unit]]:
        """Of both, the units of a kind from here on."""
        first, later = (
            [unit for unit in one.units[self.at :] if unit.kind is kind] for one in (self.earlier, self.later)
        )
        return first, later

    def continues(self) -> bool:
        """Whether it is one conversation: the same first message, or the same messages behind the difference."""
        ours, theirs = ([u for u in one.units if u.kind is Kind.MESSAGE] for one in (self.earlier, self.later))
        return bool(ours) and bool(theirs) and ours[0].text == theirs[0].text


def tools(pair: Pair) -> Seen | None:
    """The lists of tools differ."""
    ours, theirs = pair.rest(Kind.TOOL)
    names, other_names = [unit.name for unit in ours], [unit.name for unit in theirs]
    unit = pair.units[1]
    if is_reordered(texts(ours), texts(theirs)):
        return Seen(TOOL_ORDER, unit, 0, pair.kept(), before=pair.units[0].text)
    if sorted(names) == sorted(other_names) and names:
        first, later = pair.units
        offset = parted(first.text, later.text).start if first.name == later.name else 0
        rule = TOOL_DRIFT if names == other_names else TOOL_ORDER
        return Seen(rule, unit, offset, pair.kept(), every=Every.CHANGE, note=_drift(first, later), before=first.text)
    if pair.continues():
        note = f"{len(names)} tools before, {len(other_names)} now"
        return Seen(TOOL_SET, unit, 0, pair.kept(), every=Every.CHANGE, note=note, before=pair.units[0].text)
    return None


def _drift(first: Unit, later: Unit) -> str:
    """In which way one tool differs from itself."""
    if first.name != later.name:
        return "and their order"
    try:
        one, other = json.loads(first.text), json.loads(later.text)
    except ValueError:
        return ""
    if one == other:
        return f"{later.name}: keys in another order"
    if _unordered(one) == _unordered(other):
        return f"{later.name}: a list (enum, required) in another order"
    return f"{later.name}: other words"


def _unordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unordered(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(one) for one in value), key=repr)
    return value


def changed_text(pair: Pair) -> Seen | None:
    """Two versions of one text, with a literal that changes; of a system prompt also without."""
    first, later = pair.units
    if Kind.MEDIA in (first.kind, later.kind) or first.name != later.name:
        return None
    parting = parted(first.text, later.text)
    tail = first.text[len(first.text) - parting.tail :] if parting.tail else ""
    following = kept_tokens(
        texts(pair.earlier.units[pair.at + 1 :]), texts(pair.later.units[pair.at + 1 :]), pair.count
    )
    lost = pair.count(tail) + following
    is_same_text = parting.share(first.text, later.text) >= _SIMILAR or pair.count(tail) >= pair.block_tokens
    if lost < pair.block_tokens or not is_same_text:
        return None
    cause = cause_between(first.text, later.text, parting)
    rule = BEFORE_FIXED.get(cause) if cause is not None else None
    if rule is None:
        rule = FIRST_DIFFERENCE if later.kind is Kind.SYSTEM else HISTORY_CHANGED
        if rule is HISTORY_CHANGED and not _goes_on(pair):
            return None
    every = {Cause.DATE: Every.DAY, Cause.USER: Every.SESSION, Cause.SESSION_ID: Every.SESSION}.get(
        cause or Cause.UNKNOWN, Every.CALL
    )
    return Seen(rule, later, parting.start, lost, cause, every, before=first.text)


def _goes_on(pair: Pair) -> bool:
    """Whether behind the message that differs both are the same, to the end of the earlier, and another message is."""
    rest, other = pair.earlier.units[pair.at + 1 :], pair.later.units[pair.at + 1 :]
    whose = _PARTS.sub("", pair.units[1].part)
    same = [unit for unit, mine in zip(other, rest, strict=False) if unit.text == mine.text]
    is_longer = any(_PARTS.sub("", unit.part) != whose for unit in same)
    return len(same) == len(rest) and is_longer and sum(pair.count(unit.text) for unit in same) >= pair.block_tokens


def reordered(pair: Pair) -> Seen | None:
    """Examples or documents in another order: as messages, as units of their own, or as blocks of one text."""
    for kind in (Kind.DOCUMENT, Kind.MESSAGE, Kind.SYSTEM):
        ours, theirs = pair.rest(kind)
        found = _order_of_units(pair, ours, theirs, kind)
        if found is not None:
            return found
    first, later = pair.units
    if Kind.MEDIA in (first.kind, later.kind):
        return None
    before, after = paragraphs(first.text), paragraphs(later.text)
    if len(set(before) & set(after)) < _LEAST_EXAMPLES or not moved_items(before, after):
        return None
    rule = DOCUMENTS if _OF_DOCUMENTS.search(later.text) else EXAMPLES
    kept = kept_tokens(before, after, pair.count)
    return Seen(rule, later, parted(first.text, later.text).start, kept, before=first.text)


def _order_of_units(pair: Pair, ours: Sequence[Unit], theirs: Sequence[Unit], kind: Kind) -> Seen | None:
    before, after = texts(ours), texts(theirs)
    shared = set(before) & set(after)
    # The last message is what is asked; of a conversation that goes on, all earlier ones stand in their order.
    least = 2 if kind is Kind.DOCUMENT else _LEAST_EXAMPLES
    if len(shared) < least or not moved_items(before, after):
        return None
    unit = next(one for one, other in zip(theirs, ours, strict=False) if one.text != other.text)
    rule = DOCUMENTS if kind is Kind.DOCUMENT else EXAMPLES
    return Seen(rule, unit, 0, kept_tokens(before, after, pair.count), before=pair.units[0].text)


def cut(pair: Pair) -> Seen | None:
    """The later request goes on with what the earlier one had further behind, to its end: its head is gone."""
    if Kind.MESSAGE not in (pair.units[0].kind, pair.units[1].kind):
        return None
    before, after = texts(pair.earlier.units[pair.at :]), texts(pair.later.units[pair.at :])
    for gone in range(1, len(before)):
        kept = len(before) - gone
        if before[gone] == after[0] and before[gone:] == after[:kept]:
            tokens = sum(map(pair.count, after[:kept]))
            if tokens < pair.block_tokens:
                return None
            return Seen(HISTORY_CUT, pair.later.units[pair.at], 0, tokens, note=f"{gone} messages are gone")
    return None


def image(pair: Pair) -> Seen | None:
    """Another image at the same place, and reason to believe that it is the same picture."""
    first, later = pair.units
    if first.kind is not Kind.MEDIA or later.kind is not Kind.MEDIA or first.part != later.part:
        return None
    following = texts(pair.earlier.units[pair.at + 1 :]), texts(pair.later.units[pair.at + 1 :])
    goes_on = len(following[0]) > 0 and following[1][: len(following[0])] == following[0]
    why = same_picture(first.text, later.text, is_same_conversation=goes_on and len(following[1]) > len(following[0]))
    return None if why is None else Seen(IMAGE, later, 0, pair.kept(), note=why, before=first.text)


CaptureRule = Callable[[Pair], Seen | None]

OF_PARTING: Final[tuple[CaptureRule, ...]] = (cut, reordered, changed_text)


def explained(pair: Pair) -> Seen | None:
    """Why the two part where they do, by the first rule that sees something."""
    first, later = pair.units
    if Kind.TOOL in (first.kind, later.kind):
        return tools(pair)
    if first.kind is Kind.MEDIA and later.kind is Kind.MEDIA:
        return image(pair)
    return next(filter(None, (rule(pair) for rule in OF_PARTING)), None)
