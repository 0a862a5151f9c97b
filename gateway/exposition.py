"""The two texts in which metrics are told: Prometheus' own, and OpenMetrics, which has exemplars.

    Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5     --> OpenMetrics: what Prometheus asks for
    Accept: */*, or none                                                    --> text/plain

Which of the two is the first that a client can read: an order of its own by `q` is not looked at.
"""

from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics

from gateway.types import Headers


class Form(Enum):
    """A text's form; the value is its content type."""

    TEXT = b"text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"


_OPEN_METRICS: Final = b"application/openmetrics-text"


def form_for(headers: Headers) -> Form:
    """The form that the client of a scrape can read. O(fields)."""
    for name, value in headers:
        if name == b"accept" and any(_takes_open_metrics(one) for one in value.lower().split(b",")):
            return Form.OPEN_METRICS
    return Form.TEXT


def told(registry: CollectorRegistry, form: Form) -> bytes:
    """All metrics of a registry. Blocking: milliseconds."""
    if form is Form.TEXT:
        return generate_text(registry)
    text: bytes = generate_open_metrics(registry)  # type: ignore[no-untyped-call]
    return text


def _takes_open_metrics(media_range: bytes) -> bool:
    kind, *parameters = (part.strip() for part in media_range.split(b";"))
    return kind == _OPEN_METRICS and not any(one.startswith(b"q=") and not one[2:].strip(b"0.") for one in parameters)
