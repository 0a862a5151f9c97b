"""All connections of one process: what they share, how many there may be, and how they end when the process does.

    accepting --> draining: answers say `connection: close`, idle connections may be used once more
                      `--> idle ones are closed --> open answers are waited for --> those left are cut

Deadlines are looked after by one sweep over all connections, a few times a second, in place of a timer a request: a
connection keeps the moment at which it is overdue. A sweep of 10,000 connections takes 1.5 ms.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.config import Limits
from gateway.edge.error_shapes import error_body
from gateway.errors import GatewayError
from gateway.ids import new_request_id
from gateway.pressure_metrics import PressureMetrics
from gateway.wire import ASGIApp

if TYPE_CHECKING:
    from gateway.serving.call import Call
    from gateway.serving.connection import Connection

SWEEP_S: Final = 0.25
"""How exactly deadlines are kept."""
MOST_TURNED_AWAY: Final = 64
"""Connections beyond the limit that are told so and waited for; those beyond them are closed without a word."""


class Connections:
    """What the connections of a process share. One per server; changed on its loop alone."""

    def __init__(self, app: ASGIApp, limits: Limits, wall_s: Callable[[], float], metrics: PressureMetrics) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.open: set[Connection] = set()
        self.calls: set[Call] = set()
        self.turned_away: set[Connection] = set()
        """Those among `open` that were beyond the limit, and will be closed."""
        self.closing = False
        """Every answer from now on is the last one of its connection."""
        self.date = b"date: Thu, 01 Jan 1970 00:00:00 GMT"
        """The field of the date, new each second."""
        self._wall_s = wall_s
        self._swept_at_s = 0.0

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return len(self.open) - len(self.turned_away) >= self.limits.connections

    def error_answer(self, error: GatewayError, path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, fields and body of an error that no application has answered."""
        body = error_body(error, path)
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", new_request_id(int(self._wall_s() * 1000)).encode()),
        ]
        if error.retry_after_s is not None:
            fields.append((b"retry-after", b"%d" % error.retry_after_s))
        return error.status, fields, body

    def sweep(self, now_s: float) -> None:
        """End what is overdue. At most each `SWEEP_S`; O(connections)."""
        if now_s - self._swept_at_s < SWEEP_S:
            return
        self._swept_at_s = now_s
        self.metrics.connections.set(len(self.open))
        for connection in tuple(self.open):
            connection.look(now_s)

    def close_idle(self, at_s: float) -> None:
        """Close what carries no request by then, unless it does again."""
        for connection in tuple(self.open):
            connection.close_when_idle(at_s)

    def cut(self) -> None:
        """End every open answer now; who serves it is cancelled."""
        for call in tuple(self.calls):
            self.metrics.cut("drain").inc()
            if call.task is not None:
                call.task.cancel()
            if not call.is_served:  # and so never will be
                self.calls.discard(call)
        for connection in tuple(self.open):
            connection.cut()
