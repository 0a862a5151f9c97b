"""Judging a prompt in parts: what changes, what is fixed behind it, and what that costs.

    "You are ... "  {now}   "Rules: ... (800 tokens)"   {question}   "Answer in JSON."
     fixed           time    fixed, lost with every call  content     fixed, but under a block
                      ^ time-before-fixed, 800 tokens

A slot is a fault where at least a block of fixed text stands behind it. Each name is told once, at its first place.
Cost: O(parts).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from prefix_index.layout import Cause, Volatility
from prefix_index.lint.lines import Lines, estimated_tokens
from prefix_index.lint.rules import BEFORE_FIXED, DOCUMENTS, EXAMPLES
from prefix_index.lint.types import Asked, Disorder, Every, Finding, Level, Part, Place, Rule

Where = Callable[[int], Place]
"""Where in a file an offset of a text lies."""

SMALL_BLOCKS: Final[Mapping[Cause, int]] = {Cause.CONTENT: 16, Cause.USER: 4, Cause.SESSION_ID: 4}
"""Less than so many blocks lost to what the call is about or whom it is for is a note: it may have to stand there."""


def in_file(path: str, text: str) -> Where:
    """Places offsets of a file's text."""
    lines = Lines(text)
    return lambda offset: Place(path, *lines.place_of(offset), offset)


def tokens_of(text: str, asked: Asked) -> int:
    """The tokens of a text, by the model's tokenizer where there is one."""
    return asked.count_tokens(text) if asked.count_tokens is not None else estimated_tokens(text)


def judged_parts(parts: Sequence[Part], where: Where, asked: Asked) -> list[Finding]:
    """The slots of one prompt that stand before a block or more of fixed text; `where` places their offsets."""
    if not parts:
        return []
    after = _fixed_after(parts, asked)
    prompt = where(parts[0].at).text()
    found: dict[tuple[str, str], Finding] = {}
    for part, fixed_tokens in zip(parts, after, strict=True):
        rule = _rule_of(part, fixed_tokens, asked)
        if rule is None:
            continue
        place = where(part.at)
        first = found.get((rule.id, part.text))
        if first is not None:
            found[rule.id, part.text] = _also(first, place)
            continue
        lost = asked.whole_blocks(fixed_tokens)
        found[rule.id, part.text] = Finding(
            rule,
            place,
            subject=part.text,
            cause=part.cause,
            lost_tokens=lost,
            every=every_of(part),
            level=_level(rule, part, lost, asked),
            prompt=prompt,
            note=_note(part),
        )
    return list(found.values())


def _note(part: Part) -> str:
    made = f"from {part.origin}" if part.origin and part.origin != part.text else ""
    if not part.at_import:
        return made
    return f"{made}{', ' if made else ''}made when the module is imported: each process has another"


def every_of(part: Part) -> Every:
    """How often a slot changes, as the times at which a prefix is lost."""
    if part.at_import:
        return Every.CHANGE
    if part.cause is Cause.DATE:
        return Every.DAY
    return {Volatility.PER_REQUEST: Every.CALL, Volatility.PER_SESSION: Every.SESSION}.get(
        part.volatility, Every.TENANT
    )


def _rule_of(part: Part, fixed_tokens: int, asked: Asked) -> Rule | None:
    if part.disorder is Disorder.SHUFFLED or part.disorder is Disorder.SET:
        return EXAMPLES
    if fixed_tokens < asked.block_tokens or part.cause is None:
        return None
    if part.disorder is Disorder.BY_SCORE:
        return DOCUMENTS
    if part.at_import and part.cause in SMALL_BLOCKS:  # who runs the process, or what it is for: it stays
        return None
    return BEFORE_FIXED.get(part.cause) if part.volatility > Volatility.PER_TENANT else None


def _level(rule: Rule, part: Part, lost_tokens: int, asked: Asked) -> Level:
    small = 0 if part.cause is None else SMALL_BLOCKS.get(part.cause, 0)
    return Level.NOTE if lost_tokens < small * asked.block_tokens else rule.level


def _fixed_after(parts: Sequence[Part], asked: Asked) -> list[int]:
    """For each part, the tokens of fixed text behind it."""
    after: list[int] = []
    total = 0
    for part in reversed(parts):
        after.append(total)
        total += 0 if part.is_slot else tokens_of(part.text, asked)
    return after[::-1]


def _also(finding: Finding, place: Place) -> Finding:
    return replace(finding, also=(*finding.also, place))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Without those that say the same of the same place; of two, the one that lost more stays."""
    best: dict[tuple[str, Place], Finding] = {}
    for one in findings:
        key = (one.rule.id, one.place)
        if key not in best or (one.lost_tokens or 0) > (best[key].lost_tokens or 0):
            best[key] = one
    return sorted(best.values(), key=lambda one: (one.place, one.rule.id))
