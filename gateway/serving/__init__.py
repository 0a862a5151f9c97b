"""The gateway as a server: connections and their limits, drain, and an address that is told once it is real."""

from gateway.serving.connection import Connection
from gateway.serving.connections import Connections
from gateway.serving.server import AnnouncingServer, Server, run_until_stopped, server_config

__all__ = [
    "AnnouncingServer",
    "Connection",
    "Connections",
    "Server",
    "run_until_stopped",
    "server_config",
]
