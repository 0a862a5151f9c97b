"""What is wrong with live prompts, by the rules of lint: out of what this process saw, or out of the ledger's rows.

    signs of profiles --(seen often, and costs tokens)--> findings --(same rule, tenant, model, route, place)--> one
    rows of the ledger, grouped ------------------------>

What requests part in by their nature (another question, a conversation that begins) costs nothing, and is no finding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.divergence.types import Change, Sign
from prefix_index.layout import Cause
from prefix_index.lint.rules import (
    BEFORE_FIXED,
    FIRST_DIFFERENCE,
    HISTORY_CHANGED,
    HISTORY_CUT,
    MODEL_FLIP,
    SALT,
    TEMPLATE_DATE,
    TOOL_DRIFT,
    TOOL_ORDER,
    TOOL_SET,
)
from prefix_index.lint.types import Rule

FEWEST_REQUESTS: Final = 5
"""That must have parted at a place for it to be a fault, and no accident."""
LEAST_TOKENS: Final = 16
"""Lost in each of them, on average: less is less than a block."""
_DAY_S: Final = 86_400
SHORTEST_SPAN_S: Final = 3_600.0
"""What was seen for a shorter time is not extrapolated from it, but from this."""

_RULES: Final[Mapping[Change, Rule]] = {
    Change.TOOL_ORDER: TOOL_ORDER,
    Change.TOOL_SCHEMA: TOOL_DRIFT,
    Change.TOOL_SET: TOOL_SET,
    Change.HISTORY: HISTORY_CHANGED,
    Change.WINDOW: HISTORY_CUT,
    Change.TEMPLATE: TEMPLATE_DATE,
    Change.SALT: SALT,
    Change.MODEL: MODEL_FLIP,
}
_NO_FAULT: Final = frozenset({Change.GROWN, Change.TOKENIZER})


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """One fault of one kind of call. Times are seconds since 1970.

    `requests` parted there, of `of` that were seen since the first; `lost_tokens` is what they lost in all, up to
    `until_s`. `tokens` and `characters` (of the place) say where the change was seen, from the least to the most.
    """

    rule: Rule
    tenant: str
    model: str
    route: str
    place: str
    cause: Cause | None
    requests: int
    of: int
    lost_tokens: int
    first_s: float
    last_s: float
    until_s: float
    tokens: tuple[int, int] | None = None
    characters: tuple[int, int] | None = None
    causes: Mapping[Cause, int] = field(default_factory=dict)
    variants: int | None = None

    @property
    def name(self) -> tuple[str, str, str, str, str]:
        """What findings are one by."""
        return self.rule.id, self.tenant, self.model, self.route, self.place

    @property
    def lost_tokens_a_day(self) -> float:
        """At the rate since it was first seen."""
        return self.lost_tokens * _DAY_S / max(self.until_s - self.first_s, SHORTEST_SPAN_S)


def findings_of(signs: Iterable[Sign], now_s: float) -> list[LiveFinding]:
    """What the traffic of this process shows, dearest first."""
    found = (_finding(sign, now_s) for sign in signs if sign.change not in _NO_FAULT)
    return worth_telling(merged(found))


def worth_telling(findings: Iterable[LiveFinding]) -> list[LiveFinding]:
    """Those that are no accident and cost something, dearest first."""
    kept = [
        one for one in findings if one.requests >= FEWEST_REQUESTS and one.lost_tokens >= LEAST_TOKENS * one.requests
    ]
    return sorted(kept, key=lambda one: (-one.lost_tokens_a_day, one.name))


def merged(findings: Iterable[LiveFinding]) -> list[LiveFinding]:
    """Findings of the same rule, tenant, model, route and place as one."""
    found: dict[tuple[str, ...], LiveFinding] = {}
    for one in findings:
        other = found.get(one.name)
        found[one.name] = one if other is None else _joined(other, one)
    return list(found.values())


def rule_of(change: Change, cause: Cause | None) -> Rule:
    """By what a prompt changed in, and why."""
    rule = _RULES.get(change)
    if rule is not None:
        return rule
    return FIRST_DIFFERENCE if cause is None else BEFORE_FIXED.get(cause, FIRST_DIFFERENCE)


def _finding(sign: Sign, now_s: float) -> LiveFinding:
    cause = max(sign.causes, key=lambda one: sign.causes[one], default=None)
    return LiveFinding(
        *(rule_of(sign.change, cause), sign.name.tenant, sign.name.model, sign.name.route, sign.segment, cause),
        requests=sign.requests,
        of=sign.of,
        lost_tokens=sign.lost_tokens,
        first_s=sign.first_s,
        last_s=sign.last_s,
        until_s=now_s,
        tokens=sign.tokens,
        characters=sign.offsets,
        causes=sign.causes,
        variants=sign.variants if sign.change is Change.SYSTEM else None,
    )


def _joined(one: LiveFinding, other: LiveFinding) -> LiveFinding:
    causes = {cause: one.causes.get(cause, 0) + other.causes.get(cause, 0) for cause in {*one.causes, *other.causes}}
    return replace(
        one,
        cause=one.cause or other.cause,
        requests=one.requests + other.requests,
        of=one.of + other.of,
        lost_tokens=one.lost_tokens + other.lost_tokens,
        first_s=min(one.first_s, other.first_s),
        last_s=max(one.last_s, other.last_s),
        until_s=max(one.until_s, other.until_s),
        tokens=_span(one.tokens, other.tokens),
        characters=_span(one.characters, other.characters),
        causes=causes,
        variants=None
        if one.variants is None and other.variants is None
        else (one.variants or 0) + (other.variants or 0),
    )


def _span(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
