"""What the gateway can use of an engine, where it is turned on.

    an information page, labels of metrics ──> Standing of each Feature ──> what an operator is told to set

Four standings, since "it is off" and "it cannot be told" ask for different deeds: only the first is a mistake for sure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Feature(StrEnum):
    """By the words an operator is told it with."""

    CACHED_TOKENS = "cached tokens in usage"
    """Without them nobody knows what to bill as cached."""
    METRICS = "metrics"
    """Load, capacity, restarts."""
    KV_EVENTS = "KV events"
    """What enters and leaves the cache, as it happens."""
    PREFIX_CACHING = "prefix caching"
    """Without it there is nothing to route for."""
    PRIORITY = "scheduling by priority"
    """Whether the engine heeds what `backends[].pass_priority` tells it."""
    LORA = "LoRA adapters"


class Standing(StrEnum):
    """How a feature stands at one endpoint."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "cannot be told"
    """The engine does not say."""
    NEVER = "the engine has none"


@dataclass(frozen=True, slots=True)
class FeatureFact:
    """`flag` turns it on: a flag, variable or key of the engine's own configuration; empty where there is none."""

    standing: Standing
    flag: str = ""


Features = Mapping[Feature, FeatureFact]


def standing_of(said: object) -> Standing:
    """Of what a page says of a switch: true and false, also as text; anything else tells nothing."""
    match said:
        case True | "True" | "true":
            return Standing.ON
        case False | "False" | "false":
            return Standing.OFF
    return Standing.UNKNOWN
