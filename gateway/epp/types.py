"""The nouns of the endpoint picker: what the gateway in front says, and what it is told."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.types import Headers

DESTINATION: Final = "x-gateway-destination-endpoint"
"""Names the endpoints, as a header field and in metadata."""
SUBSET: Final = "x-gateway-destination-endpoint-subset"
SERVED: Final = "x-gateway-destination-endpoint-served"
ADDRESS: Final = "upstream.address"
DETAILS: Final = "response.code_details"
"""Envoy's own words for who was asked, and for what came of it, where the filter sends them (`response_attributes`)."""
VIA_UPSTREAM: Final = "via_upstream"
"""The details of an answer that an engine gave."""
METADATA: Final = "envoy.lb"
SUBSET_METADATA: Final = "envoy.lb.subset_hint"
"""Where the two are kept by default, in the Inference Extension's protocol (its proposal 004, version 1.0.0)."""


class BodyMode(Enum):
    """How a body is shown, by Envoy's names and numbers."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4
    GRPC = 5


@dataclass(frozen=True, slots=True)
class Modes:
    """How the bodies of one request and of its answer are shown."""

    request: BodyMode
    response: BodyMode


@dataclass(frozen=True, slots=True)
class Context:
    """What stands beside a message. `offered` are the only addresses that may be chosen, None: all. `served` is the
    address that has answered, or was asked last, and `details` say whose answer it is, where they are told. `modes`
    come with the first message, from those who tell them."""

    offered: frozenset[str] | None = None
    served: str | None = None
    details: str | None = None
    modes: Modes | None = None
    observes: bool = False
    """Whether nobody listens to replies."""


@dataclass(frozen=True, slots=True)
class HeadShown:
    """The head of the request or (`of_answer`) of the answer, pseudo fields included; `ends`: there is no body."""

    of_answer: bool
    fields: Headers = field(repr=False)
    ends: bool
    context: Context


@dataclass(frozen=True, slots=True)
class BodyShown:
    """A part of a body; `ends`: the last, and no trailers follow."""

    of_answer: bool
    data: bytes = field(repr=False)
    ends: bool


@dataclass(frozen=True, slots=True)
class TrailersShown:
    """The trailers, which end a body."""

    of_answer: bool


Shown = HeadShown | BodyShown | TrailersShown


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a head is to be changed. `set` replaces all fields of a name, once for each value of it."""

    set: Headers = ()
    remove: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Picked:
    """A request as it is to go: to the first of `addresses` (ip:port) that answers; `body` as the engine gets it."""

    addresses: tuple[str, ...]
    changes: Changes
    body: bytes = field(repr=False)
