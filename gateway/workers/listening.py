"""The listening sockets of all slots, which outlive every worker.

    Linux        a socket for each slot; the kernel spreads connections over them by a hash of their addresses
    elsewhere    one, which the slots share: whoever is first takes a connection

A slot without a worker keeps its socket while the next one is being started, so that nobody is turned away. One whose
workers die again and again lets go of it, and the kernel sends to the others what would have come there.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from typing import cast

_BACKLOG = 2048
_SPREADS = sys.platform == "linux"
"""Elsewhere SO_REUSEPORT, where it is known at all, gives every connection to the same socket."""

_Address = tuple[str | int, ...]
Sockets = tuple[socket.socket, ...]


class CannotListen(OSError):
    """The address cannot be bound."""


class Listening:
    """Bound and listening once made. Raises `CannotListen`."""

    def __init__(self, host: str, port: int, slots: int) -> None:
        """`host` may have several addresses; port 0 takes a free one."""
        self._where = f"{host}:{port}"
        self._spreads = _SPREADS and slots > 1
        try:
            self._addresses = [_alone(family, address) for family, address in _addresses(host, port)]
            first = self._bound() if not self._spreads else ()
            self._of_slots: list[Sockets] = [first or self._bound() for _ in range(slots)]
        except OSError as error:
            raise self._failed(error) from error
        for sockets in self._of_slots:
            for one in sockets:
                one.listen(_BACKLOG)

    @property
    def url(self) -> str:
        """Where one reaches them."""
        host, port = self._addresses[0][1][:2]
        return f"http://[{host}]:{port}" if ":" in str(host) else f"http://{host}:{port}"

    def of(self, slot: int) -> Sockets:
        """The sockets of a slot. What it had let go of is bound again, and takes connections once a worker listens.

        Raises `CannotListen`.
        """
        if any(one.fileno() < 0 for one in self._of_slots[slot]):
            try:
                self._of_slots[slot] = self._bound()
            except OSError as error:
                raise self._failed(error) from error
        return self._of_slots[slot]

    def let_go(self, slot: int) -> None:
        """Have the other slots take what comes, where each has a socket of its own."""
        if self._spreads:
            _close(self._of_slots[slot])

    def close(self) -> None:
        """Of all slots."""
        for sockets in self._of_slots:
            _close(sockets)

    def _bound(self) -> Sockets:
        return tuple(_bind(family, address, spreads=self._spreads) for family, address in self._addresses)

    def _failed(self, error: OSError) -> CannotListen:
        return CannotListen(error.errno, f"cannot listen at {self._where}: {error.strerror or error}")


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, _Address]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, cast("_Address", address)) for family, _, _, _, address in found))


def _alone(family: socket.AddressFamily, address: _Address) -> tuple[socket.AddressFamily, _Address]:
    """The address with the port that it gets, bound for a moment by us alone: two gateways that both spread would share
    a port without either noticing."""
    with _bind(family, address, spreads=False) as first:
        return family, (address[0], first.getsockname()[1], *address[2:])


def _bind(family: socket.AddressFamily, address: _Address, *, spreads: bool) -> socket.socket:
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
        number = error.errno or errno.EADDRINUSE
        raise OSError(number, os.strerror(number)) from error  # asyncio's words would be our address once more
    return bound


def _close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()
