"""Model servers: where they are, whether they live, what they hold, and one call to one of them."""

from backends.client import UpstreamClient, UpstreamResponse
from backends.errors import (
    BackendError,
    DialFailed,
    DialReason,
    FirstByteTimeout,
    IdleTimeout,
    InvalidEndpoint,
    NoEndpoint,
    ProbeFailed,
    UnknownEndpoint,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamReset,
)
from backends.perf import PerfModel
from backends.registry import PollSettings, Registry
from backends.reservations import Reservation
from backends.types import (
    Deadlines,
    EndpointConfig,
    EndpointFacts,
    EndpointId,
    EndpointSnapshot,
    EventSourceFacts,
    EventSourceKind,
    Headers,
    InFlight,
    LoadSample,
    Metering,
    ServedModel,
    UpstreamRequest,
)

__all__ = [
    "BackendError",
    "Deadlines",
    "DialFailed",
    "DialReason",
    "EndpointConfig",
    "EndpointFacts",
    "EndpointId",
    "EndpointSnapshot",
    "EventSourceFacts",
    "EventSourceKind",
    "FirstByteTimeout",
    "Headers",
    "IdleTimeout",
    "InFlight",
    "InvalidEndpoint",
    "LoadSample",
    "Metering",
    "NoEndpoint",
    "PerfModel",
    "PollSettings",
    "ProbeFailed",
    "Registry",
    "Reservation",
    "ServedModel",
    "UnknownEndpoint",
    "UpstreamClient",
    "UpstreamError",
    "UpstreamProtocolError",
    "UpstreamRequest",
    "UpstreamReset",
    "UpstreamResponse",
]
