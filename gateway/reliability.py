"""How far expectations can be relied on: expected cached tokens against reported ones, by endpoint.

    error = sum of |expected - reported| / sum of prompt tokens, in %      over the last 1,024 answers, and over all

By prompt tokens, since those are what is billed: a miss of a thousand tokens in a prompt of two thousand is not the
same as in one of a hundred thousand. Endpoints are those of the configuration, so the table is bounded.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from prefix_index.survival import SurvivalRow

WINDOW: Final = 1024
"""Answers that the window of an endpoint, and that of the fleet, looks back on."""


class Mode(StrEnum):
    """Where a holder's coverage comes from."""

    RECEIPTS = "receipts"
    EVENTS = "events"


class Outcome(StrEnum):
    """What a receipt said of what was known."""

    AGREED = "agreed"
    LESS = "less"
    """Not all was there: a contradiction."""
    MORE = "more"
    """All was there, and more that was not known: others use the engine, or it was computed and not yet confirmed."""
    UNREPORTED = "unreported"
    """The engine did not say."""
    INEXACT = "inexact"
    """The tokens of the chain are not the engine's own."""
    NOT_COMPUTED = "not_computed"
    """No first token came."""


@dataclass(slots=True)
class _Sums:
    """Sums over answers, in tokens."""

    answers: int = 0
    prompt_tokens: int = 0
    expected_tokens: int = 0
    reported_tokens: int = 0
    too_many_tokens: int = 0
    too_few_tokens: int = 0

    def add(self, prompt: int, expected: int, reported: int, times: int = 1) -> None:
        """One answer more; with `times` of -1 one that was added is none of them any more."""
        self.answers += times
        self.prompt_tokens += prompt * times
        self.expected_tokens += expected * times
        self.reported_tokens += reported * times
        if expected > reported:
            self.too_many_tokens += (expected - reported) * times
        else:
            self.too_few_tokens += (reported - expected) * times

    def as_json(self) -> dict[str, object]:
        error = self.too_many_tokens + self.too_few_tokens
        return {
            "answers": self.answers,
            "prompt_tokens": self.prompt_tokens,
            "expected_tokens": self.expected_tokens,
            "reported_tokens": self.reported_tokens,
            "expected_share": self.expected_tokens / self.prompt_tokens if self.prompt_tokens else None,
            "reported_share": self.reported_tokens / self.prompt_tokens if self.prompt_tokens else None,
            "too_many_tokens": self.too_many_tokens,
            "too_few_tokens": self.too_few_tokens,
            "mean_absolute_error_percent": 100 * error / self.prompt_tokens if self.prompt_tokens else None,
        }


@dataclass(slots=True)
class _Account:
    """One endpoint in one mode, or all of them. `window` is over the `last` answers."""

    total: _Sums = field(default_factory=_Sums)
    window: _Sums = field(default_factory=_Sums)
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    inferred_restarts: int = 0

    def add(self, prompt: int, expected: int, reported: int) -> None:
        self.total.add(prompt, expected, reported)
        if len(self.last) == WINDOW:
            self.window.add(*self.last[0], times=-1)
        self.window.add(prompt, expected, reported)
        self.last.append((prompt, expected, reported))

    def as_json(self) -> dict[str, object]:
        return {
            "window": self.window.as_json(),
            "total": self.total.as_json(),
            "receipts": {outcome.value: count for outcome, count in self.outcomes.items()},
            "inferred_restarts": self.inferred_restarts,
        }


class ReliabilityTable:
    """All comparisons of this process. O(1) a call; three integers for each answer of a window."""

    def __init__(self) -> None:
        self._all = _Account()
        self._accounts: dict[tuple[str, Mode], _Account] = {}

    def compare(
        self, endpoint_id: str, mode: Mode, prompt_tokens: int, expected_tokens: int, reported_tokens: int
    ) -> None:
        """An answer whose cached tokens were expected, and reported."""
        for account in (self._all, self._of(endpoint_id, mode)):
            account.add(prompt_tokens, expected_tokens, reported_tokens)

    def count(self, endpoint_id: str, mode: Mode, outcome: Outcome) -> None:
        """A receipt, whatever it said."""
        for account in (self._all, self._of(endpoint_id, mode)):
            account.outcomes[outcome] += 1

    def restarted(self, endpoint_id: str, mode: Mode) -> None:
        """The holder was cleared on account of its receipts."""
        for account in (self._all, self._of(endpoint_id, mode)):
            account.inferred_restarts += 1

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is none of the fleet any more; what it did stays in the sums of all."""
        self._accounts = {key: account for key, account in self._accounts.items() if key[0] != endpoint_id}

    def as_json(self, survival: Iterable[SurvivalRow] = ()) -> dict[str, object]:
        """Plain data: the fleet, each endpoint and mode, and how well survival was predicted, bucket by bucket."""
        endpoints = [
            {"endpoint": endpoint_id, "mode": mode.value, **account.as_json()}
            for (endpoint_id, mode), account in sorted(self._accounts.items(), key=lambda item: item[0])
        ]
        return {
            "window_answers": WINDOW,
            "overall": self._all.as_json(),
            "endpoints": endpoints,
            "survival": [_row_as_json(row) for row in survival],
        }

    def _of(self, endpoint_id: str, mode: Mode) -> _Account:
        account = self._accounts.get((endpoint_id, mode))
        if account is None:
            account = self._accounts[endpoint_id, mode] = _Account()
        return account


def _row_as_json(row: SurvivalRow) -> dict[str, object]:
    return {
        "variable": row.variable,
        "above": row.above,
        "up_to": row.up_to,
        "matches": row.matches,
        "expected_tokens": row.expected_tokens,
        "reported_tokens": row.reported_tokens,
        "share": row.share,
        "predicted": row.predicted,
        "present": row.present,
    }
