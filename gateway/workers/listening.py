"""The listening sockets of all slots, which outlive every worker.

On Linux each slot has a socket of its own, and the kernel spreads connections over them by their hash; elsewhere the
slots share one, and whoever is first takes a connection.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence

_BACKLOG = 2048
_SPREADS = sys.platform == "linux"
"""Elsewhere SO_REUSEPORT, where it is known at all, gives every connection to the same socket."""


class CannotListen(OSError):
    """The address cannot be bound."""


def listen(host: str, port: int, slots: int) -> tuple[tuple[socket.socket, ...], ...]:
    """For each slot its sockets, one for each address of `host`; port 0 takes a free one. Raises `CannotListen`."""
    try:
        addresses = _addresses(host, port)
        sockets = [_of_slots(family, address, slots) for family, address in addresses]
    except OSError as error:
        raise CannotListen(error.errno, f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return tuple(zip(*sockets, strict=True))


def url_of(sockets: Sequence[socket.socket]) -> str:
    """Where one reaches them."""
    host, port = sockets[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str | int, ...]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def _of_slots(family: socket.AddressFamily, address: tuple[str | int, ...], slots: int) -> list[socket.socket]:
    # The first alone: two gateways that both spread would share a port without either noticing.
    first = _bound(family, address, spreads=False)
    if not _SPREADS or slots == 1:
        first.listen(_BACKLOG)
        return [first, *(first.dup() for _ in range(slots - 1))]
    taken = (address[0], first.getsockname()[1], *address[2:])
    first.close()
    sockets = [_bound(family, taken, spreads=True) for _ in range(slots)]
    for one in sockets:
        one.listen(_BACKLOG)
    return sockets


def _bound(family: socket.AddressFamily, address: tuple[str | int, ...], *, spreads: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if spreads:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(error.errno or errno.EADDRINUSE, os.strerror(error.errno or errno.EADDRINUSE)) from error
    return bound
