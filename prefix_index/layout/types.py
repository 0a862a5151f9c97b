"""The nouns of layout: what in a prompt changes, how often, and why.

    FIXED  <  PER_TENANT  <  PER_SESSION  <  PER_REQUEST
    ^ the same in every call           never the same twice ^

An engine can use again what it computed for a prompt up to the first token that differs. So what matters of a piece of
text is not what it says but how often it changes, and where it stands: one clock in the first line costs the whole
prompt, the same clock in the last line costs a line.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Volatility(IntEnum):
    """How often something changes; the order is the order in which a prompt should hold it."""

    FIXED = 0
    PER_TENANT = 1
    """Few values, each for many calls: a language, a list of tools, a limit."""
    PER_SESSION = 2
    """One value for the calls of a conversation, a user or a day."""
    PER_REQUEST = 3

    @property
    def label(self) -> str:
        """As people write it: `fixed`, `per-tenant`, `per-session`, `per-request`."""
        return self.name.lower().replace("_", "-")


def volatility_of(label: str) -> Volatility:
    """The volatility of a label. Raises `ValueError` with the labels that there are."""
    for one in Volatility:
        if one.label == label:
            return one
    raise ValueError(f"{label!r} is not one of {', '.join(one.label for one in Volatility)}")


class Cause(StrEnum):
    """Why something changes."""

    TIME = "time"
    DATE = "date"
    EPOCH = "epoch"
    UUID = "uuid"
    HEX_ID = "hex_id"
    REQUEST_ID = "request_id"
    """An id of a request, a trace, a run: one a call."""
    SESSION_ID = "session_id"
    COUNTER = "counter"
    RANDOM = "random"
    USER = "user"
    CONFIG = "config"
    """What an operator sets: it has few values."""
    CONTENT = "content"
    """What the call is about: a question, documents, a conversation."""
    UNKNOWN = "unknown"
    """A slot whose name says nothing."""


class Certainty(IntEnum):
    """How sure it is that a literal changes from call to call, by its text alone."""

    STATIC = 0
    """It has the form of something that changes, and nothing beside it says that it does: a date in a rule, an example
    in a manual. Of interest only where it is seen to change."""
    LIKELY = 1
    CUED = 2
    """The words before it say that it does: `today is`, `request id:`."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A literal in a text that changes, or may; offsets in characters, `end` behind it.

    `volatility` says how often it changes if it does; whether it does is what `certainty` is about.
    """

    start: int
    end: int
    cause: Cause
    volatility: Volatility
    certainty: Certainty = Certainty.LIKELY
