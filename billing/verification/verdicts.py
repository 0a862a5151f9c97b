"""Whether what an engine reported can be true, and why what could have been cached was not. One request, pure.

    reported against expected        within a block: verified     else engine_higher, engine_lower     null: unreported

    prompt    |--- known to be somewhere ---|- sent before by this key -|------- new -------|
    reported  |--------------|                                                         no miss: all but what is new
                             `- routed_elsewhere: another endpoint had more, and could have taken it
                                restarted, evicted: it was there, and is gone
                                prompt_changed:N   the prompt parts from the closest earlier one at token N
                                expired            it was there, and the index no longer knew of it
                                cold               nothing of it was ever sent
                                tokens_degraded    the tokens are not the engine's own, so nothing can be compared
                                unknown            the tokens are not known at all

A miss is kept in a row as its reason, and where that has a number, `reason:number`: the place of the first changed
token, or how many tokens our own routing lost. How many tokens a miss lost for any reason is a column of its own.
"""

from collections import deque
from collections.abc import Hashable
from enum import StrEnum
from typing import Final

import msgspec

from billing.types import Verdict

MOST_MISS_BYTES: Final = 24
"""What the column holds."""
_MOST_NUMBER: Final = 9_999_999
DISPUTE_RATIO: Final = 2
SUSPECT_AFTER: Final = 3
"""So many doubtful reports among the last `SUSPECT_WINDOW` of an endpoint make a pattern."""
SUSPECT_WINDOW: Final = 32


class MissReason(StrEnum):
    """Why cached tokens were fewer than they could have been."""

    COLD = "cold"
    """Nothing of the prompt was known anywhere, nor sent by this key before."""
    EVICTED = "evicted"
    """It had been there, and the engine no longer has it."""
    ROUTED_ELSEWHERE = "routed_elsewhere"
    """Another endpoint had more of it. The number: tokens lost by our choice; none where that endpoint was away."""
    EXPIRED = "expired"
    """It had been there, so long ago that the index has forgotten it, and sent the request anywhere."""
    PROMPT_CHANGED = "prompt_changed"
    """It parts from the closest earlier prompt of this key. The number: of the first token in a block that differs."""
    RESTARTED = "restarted"
    """The engine that had it has started anew."""
    TOKENS_DEGRADED = "tokens_degraded"
    """Nothing was cached, and the prompt's tokens were counted in another way than the engine's."""
    UNKNOWN = "unknown"
    """Nothing was cached, and the prompt's tokens are not known: pictures, or an engine told to read others."""


class Miss(msgspec.Struct, frozen=True):
    """Why a request missed; as text, it is what the ledger keeps.

    `lost_tokens` would have been cached but for the reason, as far as is known: of a changed prompt what is still as it
    was behind the change, of a cold one nothing. None: not known.
    """

    reason: MissReason
    number: int | None = None
    lost_tokens: int | None = None

    def __str__(self) -> str:
        if self.number is None:
            return self.reason.value
        return f"{self.reason.value}:{min(self.number, _MOST_NUMBER)}"

    @classmethod
    def read(cls, text: str) -> "Miss":
        """A miss out of its row. Raises `ValueError` for what is none."""
        reason, _, number = text.partition(":")
        return cls(MissReason(reason), int(number) if number else None)


class Prefixes(msgspec.Struct, frozen=True):
    """How much of one prompt was known where, when it was sent, in tokens.

    `reusable`: what an engine could have reused at most. `expected`: at the endpoint it was sent to. `elsewhere`: the
    most at another endpoint that could have taken it; `unable`: at one that could not, being down or draining.
    `sent_before`: shared with the closest earlier prompt of the same key and model, None where there is none; `parted`:
    both go on after that, each its own way, with `equal_behind` tokens behind that are as before. `restarted`: the
    endpoint, or that of the earlier prompt, has started anew since; `expired`: the earlier prompt is older than what
    the index remembers.
    """

    reusable: int
    expected: int
    elsewhere: int = 0
    unable: int = 0
    sent_before: int | None = None
    parted: bool = False
    restarted: bool = False
    expired: bool = False
    equal_behind: int = 0


def verdict_of(expected: int | None, reported: int | None, tolerance: int) -> Verdict | None:
    """What the index says of a report; None where it had no expectation."""
    if reported is None:
        return Verdict.UNREPORTED
    if expected is None:
        return None
    if abs(reported - expected) <= tolerance:
        return Verdict.VERIFIED
    return Verdict.ENGINE_HIGHER if reported > expected else Verdict.ENGINE_LOWER


def is_out_of_range(reported: int | None, expected: tuple[int, int] | None) -> bool:
    """Whether a report is none of those that an engine of its kind can give, least and most; not where nobody can say
    what those are, nor where it reported nothing."""
    return reported is not None and expected is not None and not expected[0] <= reported <= expected[1]


def miss_of(reported: int, prefixes: Prefixes, tolerance: int) -> Miss | None:
    """Why less was cached than could have been; None where nothing was missed but what had never been sent."""
    if reported + tolerance >= prefixes.reusable:
        return None
    had = max(prefixes.expected, prefixes.elsewhere, prefixes.unable)
    sent = prefixes.sent_before
    if reported + tolerance < max(had, sent or 0):
        return _lost(reported, prefixes, max(prefixes.expected, reported) + tolerance)
    if prefixes.parted and sent is not None and sent + tolerance >= had:
        return Miss(MissReason.PROMPT_CHANGED, sent, min(prefixes.equal_behind, prefixes.reusable - reported))
    return Miss(MissReason.COLD, None, 0) if sent is None and not reported else None


def _lost(reported: int, prefixes: Prefixes, here: int) -> Miss:
    sent = prefixes.sent_before or 0
    if prefixes.elsewhere > here:
        lost = prefixes.elsewhere - reported
        return Miss(MissReason.ROUTED_ELSEWHERE, lost, lost)
    if prefixes.unable > here:
        return Miss(MissReason.ROUTED_ELSEWHERE, None, prefixes.unable - reported)
    reason = MissReason.RESTARTED if prefixes.restarted else MissReason.EVICTED
    if prefixes.expired and not prefixes.restarted and sent > here:
        reason = MissReason.EXPIRED
    return Miss(reason, None, max(prefixes.expected, sent) - reported)


def is_doubtful(prompt: int | None, cached: int | None, expected: int | None) -> bool:
    """A decode engine behind a split prefill reports prompt - 1 cached tokens, whether or not anything was cached.

    An honest full hit looks the same, so it is doubted only where the index expected less than half of it.
    """
    if not cached or prompt is None or expected is None:
        return False
    return cached == prompt - 1 and expected * DISPUTE_RATIO < cached


class Suspects:
    """Endpoints whose reports look like a split prefill's again and again. Of each the last reports, O(1) a report."""

    def __init__(self) -> None:
        self._last: dict[Hashable, deque[bool]] = {}

    def note(self, endpoint_id: Hashable, *, doubtful: bool) -> bool:
        """One more report that had an expectation; True where it makes the endpoint a suspect that was none."""
        last = self._last.setdefault(endpoint_id, deque(maxlen=SUSPECT_WINDOW))
        before = self.is_suspect(endpoint_id)
        last.append(doubtful)
        return not before and self.is_suspect(endpoint_id)

    def is_suspect(self, endpoint_id: Hashable) -> bool:
        """Whether there is a pattern among its last reports."""
        return sum(self._last.get(endpoint_id, ())) >= SUSPECT_AFTER

    def forget(self, endpoint_id: Hashable) -> None:
        """Another engine answers there now."""
        self._last.pop(endpoint_id, None)
