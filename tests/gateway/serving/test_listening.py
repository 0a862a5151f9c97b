"""Listeners that are to be closed, and what the system must allow."""

import socket
import subprocess
import sys

import pytest

from gateway.serving.listening import connected_by_now, notice_the_vanished


def test_who_has_connected_before_a_listener_closes_is_not_reset() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    with connected_by_now([listener]) as late:
        listener.close()
        found = list(late)
    for client, accepted in zip(clients, found, strict=True):
        with client, accepted:
            accepted.sendall(b"here")
            assert client.recv(4) == b"here"


def test_connections_ask_whether_a_silent_client_is_still_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        notice_the_vanished([listener])
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize(("soft", "hard", "room"), [(64, 4096, 1000), (64, 1512, 500), (2600, 4096, 1000)])
def test_open_files_are_asked_for_as_far_as_they_are_allowed(soft: int, hard: int, room: int) -> None:
    code = f"""
import resource
from gateway.serving.listening import room_for
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(min(room_for(1000), 1000))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ended.stdout) == room
