"""A connection to an address or a name: the addresses of a name are tried one after the other, overlapping.

    name ──getaddrinfo──> v6a v4a v6b        families in turn, the resolver's first choice first
      v6a  |───────────────x                 each has a quarter of a second before the next one starts as well
      v4a      |────>  connected             the first to be connected is taken, the others are closed
      v6b          (not started)

A host that answers on one family only is reached in a quarter of a second, not after a time-out (RFC 8305).
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final, TypeVar

HEAD_START_S: Final = 0.25
"""How long an address is alone before the next one is tried beside it."""

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Address:
    """Who to connect to; `tls` where the connection is encrypted, to a server that can prove to be `server_name`, which
    is `host` where there is none."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


async def dial(address: Address, make_protocol: Callable[[], P]) -> P:
    """The protocol of a new connection, its TLS handshake done. Give it a deadline.

    Raises what the last of the addresses tried raised: `OSError`, of which `socket.gaierror` and `ssl.SSLError` are.
    Cancelling it closes what was under way.
    """
    if _is_ip(address.host):
        return (await _connect(address, address.host, make_protocol))[1]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    hosts = families_in_turn([(family, str(where[0])) for family, _, _, _, where in found])
    if not hosts:
        raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
    if len(hosts) == 1:
        return (await _connect(address, hosts[0], make_protocol))[1]
    connected: list[tuple[asyncio.Transport, P]] = []
    taken: P | None = None
    try:
        await _race(address, hosts, make_protocol, connected)
        taken = connected[0][1]
    finally:
        for transport, protocol in connected:
            if protocol is not taken:
                transport.abort()
    return taken


def families_in_turn(found: Sequence[tuple[int, str]]) -> list[str]:
    """The addresses of (family, address) pairs, each once: families take turns, beginning with that of the first."""
    of: dict[int, list[str]] = {}
    for family, host in dict.fromkeys(found):
        of.setdefault(family, []).append(host)
    return [host for host in chain.from_iterable(zip_longest(*of.values())) if host is not None]


async def _connect(address: Address, host: str, make_protocol: Callable[[], P]) -> tuple[asyncio.Transport, P]:
    # A name may end with a dot, which is no part of what a certificate says.
    proved = None if address.tls is None else (address.server_name or address.host).rstrip(".")
    return await asyncio.get_running_loop().create_connection(
        make_protocol, host, address.port, ssl=address.tls, server_hostname=proved
    )


async def _race(
    address: Address,
    hosts: Sequence[str],
    make_protocol: Callable[[], P],
    connected: list[tuple[asyncio.Transport, P]],
) -> None:
    """Fill `connected`, with more than one where two came in together. Raises what the last failure was if none did."""
    errors: list[OSError] = []
    settled = asyncio.Event()

    async def attempt(host: str, over: asyncio.Event) -> None:
        try:
            connected.append(await _connect(address, host, make_protocol))
        except OSError as error:
            errors.append(error)
        over.set()
        if connected or len(errors) == len(hosts):
            settled.set()

    async with asyncio.TaskGroup() as group:
        attempts = []
        for host in hosts:
            over = asyncio.Event()
            attempts.append(group.create_task(attempt(host, over)))
            with suppress(TimeoutError):
                async with asyncio.timeout(HEAD_START_S):
                    await over.wait()
            if connected:
                break
        await settled.wait()
        for one in attempts:
            one.cancel()
    if not connected:
        raise errors[-1]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
