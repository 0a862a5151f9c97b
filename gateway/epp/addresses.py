"""Endpoints as the addresses that a gateway in front knows them by: ip:port, whatever their URLs say.

http://10.1.0.7:8000     10.1.0.7:8000                 at once
http://[fd00::7]:8000    [fd00::7]:8000
http://engine-1:8000     looked up, kept `KEPT_S`      all of its addresses; the first is named
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from backends import DialFailed, DialReason, EndpointConfig
from backends.target import target_of

KEPT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Found:
    addresses: tuple[str, ...]
    until_s: float


class Addresses:
    """One per process. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: dict[tuple[str, int], _Found] = {}

    async def of(self, endpoint: EndpointConfig, within_s: float) -> tuple[str, ...]:
        """The addresses of an endpoint, at least one. Raises `DialFailed` where its name leads to none in time."""
        key, literal = _place(endpoint)
        if literal is not None:
            return literal
        found = self._found.get(key)
        if found is None or found.until_s < self._clock():
            found = _Found(await _looked_up(endpoint, *key, within_s), self._clock() + KEPT_S)
            self._found[key] = found
        return found.addresses


@lru_cache(4096)
def _place(endpoint: EndpointConfig) -> tuple[tuple[str, int], tuple[str, ...] | None]:
    """Host and port, and the address where the host is one. Kept: a request may ask for all endpoints of a fleet."""
    target = target_of(endpoint)
    literal = _literal(target.host, target.port)
    return (target.host, target.port), None if literal is None else (literal,)


async def _looked_up(endpoint: EndpointConfig, host: str, port: int, within_s: float) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(within_s):
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise DialFailed(endpoint.id, DialReason.TIMEOUT) from None
    except OSError:
        raise DialFailed(endpoint.id, DialReason.DNS) from None
    found = dict.fromkeys(_literal(str(info[4][0]), port) for info in infos)
    addresses = tuple(address for address in found if address is not None)
    if not addresses:
        raise DialFailed(endpoint.id, DialReason.DNS)
    return addresses


def _literal(host: str, port: int) -> str | None:
    """An IP address and a port as one text; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
