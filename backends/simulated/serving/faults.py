"""What can be made to go wrong with an engine behind a port, from outside."""

from enum import StrEnum
from typing import Final

import msgspec

_ROUNDED: Final = 1e-9
"""By so much sums of shares may be off: ten times a tenth is a little less than 1."""


class WrongUsage(StrEnum):
    """Lies about what was computed."""

    NONE = "none"
    ALL_CACHED = "all_cached"
    """All but one token of each prompt came from the cache."""
    NONE_CACHED = "none_cached"
    DOUBLE_PROMPT = "double_prompt"
    DOUBLE_OUTPUT = "double_output"
    MISSING = "missing"
    """No usage at all."""


class Faults(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All of them may be on at once; none is, at first.

    `frozen`: connections are taken, and nothing is ever answered on them, not even health. `wedged`: requests are
    taken and wait for ever, counters stand still, every page answers. `slow`: everything takes so many times as long.
    `die_after_events`: the engine dies once it has streamed so many events from now on, all streams together, after
    `die_within_bytes` bytes of the next one. `reset_after_events`: each stream is reset once it has so many events.
    `reset_share`, `error_share`: shares of requests that are reset, or answered with `error_status`, instead of being
    computed, spread evenly and without chance. `not_ready`: health says no, requests are computed all the same.
    """

    frozen: bool = False
    wedged: bool = False
    slow: float = 1.0
    die_after_events: int | None = None
    die_within_bytes: int = 0
    reset_after_events: int | None = None
    reset_share: float = 0.0
    error_share: float = 0.0
    error_status: int = 500
    wrong_usage: WrongUsage = WrongUsage.NONE
    not_ready: bool = False


class Share:
    """Every so-manieth, without chance: of n the floor of share · n, evenly spread."""

    def __init__(self) -> None:
        self._due = 0.0

    def hits(self, share: float) -> bool:
        """Whether this one is among them."""
        self._due += share
        if self._due < 1 - _ROUNDED:
            return False
        self._due -= 1
        return True
