"""The listening side: room for connections, clients that vanish, and none that has connected is reset by a stop."""

import os
import resource
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_OTHER_FILES: Final = 512
"""The ledger, Redis, logs, modules, and some to spare."""
_FIRST_PROBE_S: Final = 30
_PROBE_EACH_S: Final = 10
_MOST_PROBES: Final = 3


def room_for(connections: int) -> int:
    """Have the system allow the open files of so many connections, each with one to an engine, as far as it does.

    For how many there is room then. Many systems begin with 1,024 files, and allow a process more if it asks.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return connections if soft == resource.RLIM_INFINITY else max((soft - _OTHER_FILES) // 2, 0)


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
