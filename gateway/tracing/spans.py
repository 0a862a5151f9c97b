"""A request that is over, as spans.

    POST /v1/chat/completions                                                         server
    |- body  |- edge  |- render  |- tokens  |- chain  |- match  |- limits             internal
    |- retries                                                                        internal
    |- chat llama-3.1-8b                           (an attempt that failed)           client
    |- decide  |- open                                                                internal
    |- chat llama-3.1-8b                                                              client
    |           `- connect  |- first_byte  |- answer                                  internal
    `- settle

Names and values are those of OpenTelemetry's conventions for HTTP and for generative AI where they have one, else
`prefixgate.*`. Nothing that a client wrote is in them but the name of a model that is served here: no text, no key, no
field of its request; of tenants their id.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

from billing import Attempt
from gateway.timing import Step
from gateway.types import Route

Value = str | bool | int | float
Moment = int
"""Nanoseconds since 1970."""

OPERATIONS: Final = {
    Route.CHAT: "chat",
    Route.RESPONSES: "chat",
    Route.MESSAGES: "chat",
    Route.COMPLETIONS: "text_completion",
    Route.EMBEDDINGS: "embeddings",
}
_AT_ENDPOINT: Final = frozenset({Step.CONNECT, Step.FIRST_BYTE, Step.ANSWER})
_NO_FAULT: Final = frozenset({"answered", "cut"})
"""Outcomes of attempts that do not speak against the endpoint: of an answer that was cut the client has left."""
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Kind(Enum):
    """Whose side of a call a span is."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids are hex digits. `error` says why it failed, None where it did not."""

    name: str
    kind: Kind
    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    began: Moment
    ended: Moment
    attributes: Mapping[str, Value]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """What spans are made of, once a request is over.

    `began_s` and the moments of `steps` are by one monotonic clock, `opened_at` is `began_s` by the wall's.
    `attempt_ids` are the spans of the attempts, in order. `urls` are those of endpoints by id. `attributes` are of the
    request's own span, `of_answer` of it and of the attempt that answered. None is unknown.
    """

    trace_id: bytes
    parent_id: bytes | None
    span_id: bytes
    attempt_ids: tuple[bytes, ...]
    began_s: float
    ended_s: float
    opened_at: datetime
    steps: tuple[tuple[Step, float, float], ...]
    attempts: tuple[Attempt, ...]
    urls: Mapping[str, str]
    route: Route
    path: str
    status: int | None
    failed: bool
    attributes: Mapping[str, Value | None]
    of_answer: Mapping[str, Value | None]
    model: str
    provider: str | None

    @property
    def span_count(self) -> int:
        """How many spans it makes."""
        return 1 + len(self.attempt_ids) + len(self.steps)


def spans_of(request: TracedRequest, new_id: Iterator[bytes]) -> Iterator[Span]:
    """The spans of a request, its own first. `new_id` gives ids for the steps. O(steps and attempts)."""
    root = _root(request)
    yield root
    for span_id, attempt in zip(request.attempt_ids, request.attempts, strict=False):
        yield _attempt(request, span_id, attempt)
    last = request.attempt_ids[-1] if request.attempt_ids else request.span_id
    for step, began_s, ended_s in request.steps:
        parent_id = last if step in _AT_ENDPOINT else request.span_id
        times = (_moment(request, began_s), _moment(request, ended_s))
        yield Span(step.value, Kind.INTERNAL, request.trace_id, next(new_id), parent_id, *times, {})


def _root(request: TracedRequest) -> Span:
    status = request.status
    attributes: dict[str, Value | None] = {
        "http.request.method": "POST",
        "http.route": request.path,
        "url.path": request.path,
        "http.response.status_code": status,
        **_of_model(request),
        **request.of_answer,
        **request.attributes,
    }
    error = None if not request.failed else "failed" if status is None else str(status)
    if error is not None:
        attributes["error.type"] = error
    times = (_moment(request, request.began_s), _moment(request, request.ended_s))
    ids = (request.trace_id, request.span_id, request.parent_id)
    return Span(f"POST {request.path}", Kind.SERVER, *ids, *times, _known(attributes), error)


def _attempt(request: TracedRequest, span_id: bytes, attempt: Attempt) -> Span:
    server, port = server_of(request.urls.get(attempt.endpoint_id, ""))
    error = error_of(attempt)
    attributes: dict[str, Value | None] = {
        **_of_model(request),
        **(request.of_answer if attempt is request.attempts[-1] and error is None else {}),
        "prefixgate.endpoint": attempt.endpoint_id,
        "prefixgate.outcome": attempt.outcome,
        "server.address": server,
        "server.port": port,
        "http.response.status_code": attempt.status,
        "error.type": error,
    }
    name = f"{OPERATIONS.get(request.route, 'POST')} {request.model}"
    times = (_wall(attempt.started_at), _wall(attempt.ended_at))
    ids = (request.trace_id, span_id, request.span_id)
    return Span(name, Kind.CLIENT, *ids, *times, _known(attributes), error)


def error_of(attempt: Attempt) -> str | None:
    """Why an attempt failed, as `error.type` has it; None where it did not."""
    refused = attempt.status is not None and attempt.status >= 400
    return attempt.outcome if attempt.outcome not in _NO_FAULT else str(attempt.status) if refused else None


def server_of(url: str) -> tuple[str | None, int | None]:
    """Address and port of a URL; None where it is not known."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _of_model(request: TracedRequest) -> dict[str, Value | None]:
    return {
        "gen_ai.operation.name": OPERATIONS.get(request.route),
        "gen_ai.provider.name": request.provider,
        "gen_ai.request.model": request.model,
    }


def _known(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}


def _moment(request: TracedRequest, at_s: float) -> Moment:
    return _wall(request.opened_at) + round((at_s - request.began_s) * 1e9)


def _wall(at: datetime) -> Moment:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
