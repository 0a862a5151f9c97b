"""Listening sockets that outlive workers: real ones, of which the kernel knows."""

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing

import pytest

from gateway.workers.listening import CannotListen, Listening, Sockets

CONNECTIONS = 64
"""Over two sockets: that one of them gets none is a chance of 1 in 2^63."""


def taken(listening: Listening, slots: Sequence[int]) -> list[int]:
    """How many of so many connections each slot gets."""
    port = int(listening.url.rpartition(":")[2])
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        return [accepted(listening.of(slot)) for slot in slots]


def accepted(sockets: Sockets) -> int:
    count = 0
    for one in sockets:
        try:
            while True:
                one.accept()[0].close()
                count += 1
        except OSError:  # nothing more, or nobody listens
            pass
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the slots share a socket")
def test_connections_are_spread_over_the_slots_that_have_not_let_go() -> None:
    with closing(Listening("127.0.0.1", 0, 2)) as listening:
        both = taken(listening, (0, 1))
        assert sum(both) == CONNECTIONS
        assert min(both) > 0
        listening.let_go(0)
        assert taken(listening, (1,)) == [CONNECTIONS]
        assert taken(listening, (0, 1)) == [0, CONNECTIONS]  # bound again, and nobody listens yet
        for one in listening.of(0):
            one.listen()
        again = taken(listening, (0, 1))
        assert sum(again) == CONNECTIONS
        assert min(again) > 0


def test_a_single_slot_lets_go_of_nothing() -> None:
    with closing(Listening("127.0.0.1", 0, 1)) as listening:
        listening.let_go(0)
        assert taken(listening, (0,)) == [CONNECTIONS]


@pytest.mark.parametrize("slots", [1, 2])
def test_an_address_that_is_taken_is_refused_also_by_another_gateway_of_ours(slots: int) -> None:
    with closing(Listening("127.0.0.1", 0, 2)) as listening:
        port = int(listening.url.rpartition(":")[2])
        with pytest.raises(CannotListen, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            Listening("127.0.0.1", port, slots)


def test_every_address_of_a_name_is_bound() -> None:
    found = {one[4][0] for one in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with closing(Listening("localhost", 0, 1)) as listening:
        assert {one.getsockname()[0] for one in listening.of(0)} == found
