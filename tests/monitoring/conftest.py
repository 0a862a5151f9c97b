"""Gateways and their clients are those of the gateway's own tests."""

from tests.gateway.conftest import client, start_gateway

__all__ = ["client", "start_gateway"]
