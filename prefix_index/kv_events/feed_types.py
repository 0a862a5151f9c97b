"""The nouns of a feed: how it stands, what it counted, where it writes, how patient it is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from prefix_index.types import Chain, Claim


class FeedState(StrEnum):
    """What the index knows through a feed."""

    CONNECTING = "connecting"
    """Not yet: no connection so far, or the replay is being read."""
    IN_STEP = "in_step"
    """All that the cache holds."""
    PARTIAL = "partial"
    """What was stored since some moment; what is older only as far as answers tell, and nobody says when it goes."""
    AWAY = "away"
    """Nothing: there is no connection, or the engine does not answer."""
    SILENT = "silent"
    """Nothing: the engine computes, and no event arrives."""
    NOT_CONSUMER = "not_consumer"
    """Whatever another replica knows, which reads the events of this endpoint."""


class EventSink(Protocol):
    """Where changes go: `SharedIndex` is one. Nothing here raises or blocks."""

    @property
    def queued_writes(self) -> int:
        """Writes that wait for a slow index: a feed holds back while they are many."""

    def losses_of(self, holder: str) -> int:
        """Rises whenever what was written for `holder` may be lost: a feed tells it again then."""

    def observe(self, holder: str, chain: Chain, claim: Claim) -> None:
        """`holder` has all of `chain`."""

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim) -> None:
        """`holder` lost `chain[from_block]` and all after it, on all branches."""

    def clear(self, holder: str) -> None:
        """`holder` has nothing."""


@dataclass(slots=True)
class FeedCounters:
    """What happened so far. `lag_s` is how old the last batch was when it was applied, None before the first."""

    batches: int = 0
    gaps: int = 0
    restarts: int = 0
    replays: int = 0
    resyncs: int = 0
    malformed: int = 0
    skipped: int = 0
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How patient a feed is, in seconds where nothing else is said."""

    away_after_s: float = 5.0
    """Without a connection until the feed counts as away, and gives its lease back."""
    silent_after_s: float = 5.0
    """Without an event although the engine has computed, until it counts as silent."""
    silent_tokens: int = 2048
    """Tokens computed meanwhile, at least. Fewer may not have filled a block."""
    replay_patience_s: float = 2.0
    """For the next message of a replay."""
    replay_within_s: float = 30.0
    """For a whole replay."""
    retry_replay_s: float = 5.0
    """Until a replay that was not answered is asked for again; twice as long each time, up to `retry_replay_max_s`."""
    retry_replay_max_s: float = 300.0
    """See `retry_replay_s`."""
    turn_s: float = 0.002
    """Work at one go, before other tasks have theirs."""
    queued_writes: int = 2_000
    """Writes that may wait in the sink before the feed holds back."""
    poll_s: float = 1.0
    """Between two polls of an engine that is polled."""
    poll_deadline_s: float = 5.0
    """For one poll."""
