"""What is said on the line between a worker and its supervisor.

    supervisor --> worker    Terms, once; Crew, when it changes; Drained, once it is ready; Replaced; questions
    worker --> supervisor    Ready, once; Drained, when it was told so; Farewell, at an orderly end; questions

A question is a `Call` to be served as if it had come in over HTTP, `Metrics` or `Healthy`. Asked by a worker, they are
about all workers: the supervisor asks each of the others. Both ends are one version of this program.
"""

import msgspec


class Terms(msgspec.Struct, frozen=True, tag=True):
    """What a worker is to do: `slot` of the listening sockets is its, as the `number`-th worker of all."""

    config: bytes
    """The whole configuration as JSON."""
    slot: int
    number: int
    redis_url: str | None
    """A private server that all workers share; None where the configuration names one, or wants none."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker takes connections."""


class Crew(msgspec.Struct, frozen=True, tag=True):
    """How many workers take connections, and how many there should be."""

    alive: int
    wanted: int


class Drained(msgspec.Struct, frozen=True, tag=True):
    """Endpoints that are to get no new requests, or again; the supervisor tells those who come later."""

    endpoint_ids: list[str]
    draining: bool


class Replaced(msgspec.Struct, frozen=True, tag=True):
    """Another worker has the slot: finish what was begun, and end."""


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """The worker's metrics as they were when it had done everything, as OpenMetrics."""

    exposition: bytes


class Call(msgspec.Struct, frozen=True, tag=True):
    """A request."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """The text of all metrics: a worker's own is always OpenMetrics, that of all of them is what is asked for."""

    open_metrics: bool = True


class Healthy(msgspec.Struct, frozen=True, tag=True):
    """Which endpoints take requests, as a worker sees them."""


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a call."""

    status: int
    content_type: bytes
    body: bytes


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A question; its answer bears the same number."""

    number: int
    question: Call | Metrics | Healthy


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The replies to a question, of whoever could answer: none is no answer."""

    number: int
    replies: list[Reply]


Question = Call | Metrics | Healthy
Note = Terms | Ready | Crew | Drained | Replaced | Farewell
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Terms | Ready | Crew | Drained | Replaced | Farewell | Asked | Answered).decode
