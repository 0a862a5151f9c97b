"""Ports for programs that cannot say which one they took."""

import socket


def free_port() -> int:
    """A port of this machine that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
