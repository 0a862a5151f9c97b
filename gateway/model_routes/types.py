"""The nouns of model routes: a name that clients use, the arms that share it, and who answers where they cannot.

"fast" --sticky key--> arm "stable"  llama-70b       95
                       arm "canary"  llama-70b-v2     5
       --where that cannot answer--> llama-8b, ...
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.types import Trouble


class Sticky(StrEnum):
    """What goes to one arm together."""

    CONVERSATION = "conversation"
    """A job, where the client names one, else all turns of a conversation."""
    PREFIX = "prefix"
    """Prompts that begin alike."""
    TENANT = "tenant"
    REQUEST = "request"
    """Nothing: each request is drawn for itself."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A served model with its share of a name's requests. `endpoints` are those that serve it, a name may end in `*`;
    None: all of the model."""

    name: str
    model: str
    weight: int
    endpoints: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class GuardRule:
    """When the watched arm is stopped: see `guarding`."""

    arm: str
    most_errors: float
    most_ttft: float
    min_requests: int
    window_s: float


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """A name with all that it may mean."""

    name: str
    arms: tuple[Arm, ...]
    sticky: Sticky = Sticky.CONVERSATION
    fallbacks: tuple[str, ...] = ()
    fall_back_on: frozenset[Trouble] = frozenset(Trouble)
    guard: GuardRule | None = None
