"""The nouns of a run in which processes die: what a client asked, what it saw, what the ledgers hold."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended for its client."""

    SERVED = "served"
    CUT = "cut"
    """It ended after its first bytes and before its end: nobody can serve it then."""
    FAILED = "failed"
    """It was refused, or nobody took it, before anything was received: somebody could have served it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of an answer's usage; None: not said."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one request. Times are monotonic seconds; `replica` and `request_id` are those of the last
    attempt, None where it received nothing. `retries` counts replicas that died before they had sent anything."""

    name: str
    conversation: str
    turn: int
    tenant: str
    started_s: float
    ended_s: float
    outcome: Outcome
    usage: Counts = Counts()
    expected_tokens: int | None = None
    first_s: float | None = None
    replica: int | None = None
    endpoint: str | None = None
    request_id: str | None = None
    retries: int = 0
    why: str = ""

    @property
    def error_tokens(self) -> int | None:
        """Expected less reported cached tokens; None where either is not known."""
        if self.expected_tokens is None or self.usage.cached_tokens is None:
            return None
        return self.expected_tokens - self.usage.cached_tokens


@dataclass(frozen=True, slots=True)
class Row:
    """A request in a ledger; `state` is None while it is open. `charged_pico` None: not billed, or not known."""

    ledger: int
    request_id: str
    tenant: str
    state: str | None
    usage: Counts = Counts()
    expected_tokens: int | None = None
    endpoint: str | None = None
    charged_pico: int | None = None
