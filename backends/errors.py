"""What goes wrong between the gateway and a model server.

    BackendError
    ├── InvalidEndpoint            the configuration names an impossible address
    ├── NoEndpoint                 nobody left to ask
    ├── UnknownEndpoint            no endpoint of that id
    ├── ProbeFailed                an endpoint did not pass its health check
    └── UpstreamError              one call to one endpoint
        ├── DialFailed             nothing was answered: another endpoint may be tried
        │   └── ServedElsewhere    who carries the call has tried it there already
        ├── FirstByteTimeout       connected, and silent too long before the answer's head
        ├── IdleTimeout            silent too long inside the answer
        ├── UpstreamReset          the answer broke off after its first byte
        └── UpstreamProtocolError  what came is not HTTP

`before_first_byte` says whether the client can still be served elsewhere; `blames_endpoint` whether the failure
counts against the endpoint's health. Messages carry ids, phases and numbers, never headers, bodies, keys or URLs.
"""

from collections.abc import Sequence
from enum import StrEnum


class BackendError(Exception):
    """Root of this room's errors."""


class InvalidEndpoint(BackendError):
    """An endpoint's configuration cannot work; `reason` says what to change."""

    def __init__(self, endpoint_id: str, reason: str) -> None:
        super().__init__(f"endpoint {endpoint_id}: {reason}")
        self.endpoint_id = endpoint_id
        self.reason = reason


class NoEndpoint(BackendError):
    """No endpoint can take the request; `tried` are those that failed for it, in order."""

    def __init__(self, model: str, tried: Sequence[str] = ()) -> None:
        detail = f" after trying {', '.join(tried)}" if tried else ""
        super().__init__(f"no healthy endpoint serves model {model}{detail}")
        self.model = model
        self.tried = tuple(tried)


class UnknownEndpoint(BackendError):
    """The registry has no endpoint of that id."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"no endpoint has the id {endpoint_id}")
        self.endpoint_id = endpoint_id


class ProbeFailed(BackendError):
    """A health check or detection failed; `reason` is short, stable text for people and snapshots."""

    def __init__(self, endpoint_id: str, reason: str) -> None:
        super().__init__(f"endpoint {endpoint_id}: {reason}")
        self.endpoint_id = endpoint_id
        self.reason = reason


class UpstreamError(BackendError):
    """One call to one endpoint failed."""

    before_first_byte = True
    blames_endpoint = True

    def __init__(self, endpoint_id: str, what: str) -> None:
        super().__init__(f"endpoint {endpoint_id}: {what}")
        self.endpoint_id = endpoint_id


class DialReason(StrEnum):
    """Why nothing was answered."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    DNS = "dns"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    """Connected, then closed by the endpoint before the first byte of an answer."""
    POOL = "pool"
    """Every connection allowed to the endpoint was busy until the deadline, or this machine has no file or port left
    for one: our limit, not the endpoint's fault."""


class DialFailed(UpstreamError):
    """The endpoint gave no answer at all; no byte of it reached anyone, so another endpoint may be tried."""

    def __init__(self, endpoint_id: str, reason: DialReason) -> None:
        super().__init__(endpoint_id, f"dial failed ({reason.value})")
        self.reason = reason
        self.blames_endpoint = reason is not DialReason.POOL


class ServedElsewhere(DialFailed):
    """Who carries the call has gone on to `by`, the next of the endpoints that it was given."""

    def __init__(self, endpoint_id: str, by: str) -> None:
        super().__init__(endpoint_id, DialReason.UNREACHABLE)
        self.by = by


class FirstByteTimeout(UpstreamError):
    """The endpoint accepted the request and said nothing for `after_s` seconds."""

    def __init__(self, endpoint_id: str, after_s: float) -> None:
        super().__init__(endpoint_id, f"no first byte within {after_s:g} s")
        self.after_s = after_s


class IdleTimeout(UpstreamError):
    """The answer stood still for `after_s` seconds after `received_bytes` of body."""

    before_first_byte = False

    def __init__(self, endpoint_id: str, after_s: float, received_bytes: int) -> None:
        super().__init__(endpoint_id, f"silent for {after_s:g} s after {received_bytes} bytes")
        self.after_s = after_s
        self.received_bytes = received_bytes


class UpstreamReset(UpstreamError):
    """The answer ended before it was whole, after `received_bytes` of body."""

    before_first_byte = False

    def __init__(self, endpoint_id: str, received_bytes: int) -> None:
        super().__init__(endpoint_id, f"answer broken off after {received_bytes} bytes")
        self.received_bytes = received_bytes


class UpstreamProtocolError(UpstreamError):
    """The endpoint's bytes are not the HTTP we can relay: bad framing, an oversized head, another protocol.

    `received_bytes` is None when the head of the answer was already bad, else the body bytes relayed before.
    """

    def __init__(self, endpoint_id: str, received_bytes: int | None = None) -> None:
        where = "in its head" if received_bytes is None else f"after {received_bytes} bytes of body"
        super().__init__(endpoint_id, f"not valid HTTP {where}")
        self.received_bytes = received_bytes
        self.before_first_byte = received_bytes is None


class FaultKind(StrEnum):
    """What an endpoint did wrong once it could be dialled, in a word or three: for people, and bounded, for labels."""

    NO_FIRST_BYTE = "no_first_byte"
    SILENT = "silent"
    """Inside an answer."""
    BROKEN_OFF = "broken_off"
    GARBLED = "garbled"
    STATUS_5XX = "status_5xx"
    """It failed at what another endpoint then did."""
    LEFT_UNANSWERED = "left_unanswered"
    """Its client waited for longer than it should have to, and left."""


def fault_kind(error: UpstreamError) -> DialReason | FaultKind:
    """What went wrong with a call."""
    match error:
        case DialFailed():
            return error.reason
        case FirstByteTimeout():
            return FaultKind.NO_FIRST_BYTE
        case IdleTimeout():
            return FaultKind.SILENT
        case UpstreamReset():
            return FaultKind.BROKEN_OFF
    return FaultKind.GARBLED
