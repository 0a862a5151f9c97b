"""The listening side: clients that vanish are noticed, and none that has connected is turned away by a stop."""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_FIRST_PROBE_S: Final = 30
_PROBE_EACH_S: Final = 10
_MOST_PROBES: Final = 3


def notice_the_vanished(listeners: Iterable[socket.socket]) -> None:
    """Have the system ask a connection that is silent whether its client is still there: after a minute it is closed.

    A machine that lost its power or its network says nothing, and a request may wait minutes for its answer.
    Connections have what their listener has.
    """
    for listener in listeners:
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (
                ("TCP_KEEPIDLE", _FIRST_PROBE_S),
                ("TCP_KEEPINTVL", _PROBE_EACH_S),
                ("TCP_KEEPCNT", _MOST_PROBES),
            ):
                if hasattr(socket, option):  # not every system has them
                    listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


@contextmanager
def connected_by_now(listeners: Iterable[socket.socket]) -> Iterator[Iterator[socket.socket]]:
    """The connections that nobody has accepted yet. Closing a listener resets them: close yours inside the block."""
    copies = [socket.socket(fileno=os.dup(listener.fileno())) for listener in listeners]
    try:
        yield _accepted(copies)
    finally:
        for copy in copies:
            copy.close()


def _accepted(listeners: Iterable[socket.socket]) -> Iterator[socket.socket]:
    for listener in listeners:
        listener.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                yield listener.accept()[0]
