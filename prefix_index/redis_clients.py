"""Clients as the index wants them, for servers in all shapes.

They return bytes, retry nothing, since whoever calls has a deadline, and connect on use. Each is used as
`async with connect(url) as client`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff

from prefix_index.errors import RedisAddressInvalid
from prefix_index.redis_address import Place, RedisAccess, RedisAddress, Shape, read_address
from prefix_index.redis_cluster import ASK_S, ClusterClient

RedisClient = Redis | ClusterClient
"""What `connect` makes."""

_MOST_CONNECTIONS = 256
"""Of one client to one server. The index needs a handful; who asks for responses has a deadline of its own."""


def connect(url: str, access: RedisAccess | None = None) -> RedisClient:
    """A client for a URL of `redis_address`. Raises RedisAddressInvalid."""
    address = read_address(url)
    if address.shape is not Shape.CLUSTER:
        return connect_one(url, access)
    settings = _settings(address, access or RedisAccess())
    return ClusterClient(address.places, lambda place: _client_of(place, settings, tls=address.tls))


def connect_one(url: str, access: RedisAccess | None = None) -> Redis:
    """redis-py's own client, of a single server or of the sentinels' primary. Raises RedisAddressInvalid."""
    address = read_address(url)
    settings = _settings(address, access or RedisAccess())
    if address.shape is Shape.CLUSTER:
        raise RedisAddressInvalid("a cluster is not one server")
    if address.shape is Shape.SENTINEL:
        return _behind_sentinels(address, access or RedisAccess(), settings)
    return Redis.from_url(url, retry=_never(), **settings)


async def primary_of(client: RedisClient, key: bytes) -> Redis:
    """The client that serves a key: the client itself, except in a cluster. Raises redis-py's ConnectionError."""
    return await client.primary_of(key) if isinstance(client, ClusterClient) else client


async def follow_primary(client: RedisClient, every_s: float) -> None:
    """Leave a primary that the sentinels have deposed, until cancelled; returns where there are no sentinels.

    A primary that died is left without this. One that an operator deposed, or that was cut off, goes on taking writes
    for some seconds before it is told, and loses them.
    """
    pool = client.connection_pool if isinstance(client, Redis) else None
    while isinstance(pool, _PrimaryPool):
        await asyncio.sleep(every_s)
        with suppress(redis_errors.ConnectionError):
            await pool.follow()


def _settings(address: RedisAddress, access: RedisAccess) -> dict[str, Any]:
    """What all connections to servers have in common."""
    if access.password is not None and address.password is not None:
        raise RedisAddressInvalid("the password is given twice, in the URL and by itself")
    settings: dict[str, Any] = {
        "username": access.username or address.username,
        "password": access.password or address.password,
        "max_connections": _MOST_CONNECTIONS,
        **_COMMON,
    }
    if address.tls:
        settings |= _trust(access)
    return settings


_COMMON: Mapping[str, Any] = {
    "decode_responses": False,
    # In protocol 3 redis-py gives connections to the next caller without looking whether a reply is left in them.
    "protocol": 2,
    # No CLIENT SETINFO: two commands less to wait for, and to be allowed.
    "driver_info": None,
    "socket_connect_timeout": 1.0,
    # No socket timeout: under one, redis-py writes inside asyncio.wait_for, which in Python 3.11 can swallow a
    # cancellation, and our deadlines are cancellations.
    "socket_timeout": None,
}


def _trust(access: RedisAccess) -> dict[str, Any]:
    """The files of TLS, looked at once: redis-py would find out that one is missing at each connection."""
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            context.load_cert_chain(access.cert_file, access.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise RedisAddressInvalid(f"the files for TLS to Redis cannot be used: {error.strerror}") from None
    files = {"ssl_ca_certs": access.ca_file, "ssl_certfile": access.cert_file, "ssl_keyfile": access.key_file}
    return {name: str(file) for name, file in files.items() if file is not None}


def _never() -> Retry:
    return Retry(NoBackoff(), 0)


def _client_of(place: Place, settings: Mapping[str, Any], *, tls: bool) -> Redis:
    return Redis(host=place.host, port=place.port, ssl=tls, retry=_never(), **settings)


def _behind_sentinels(address: RedisAddress, access: RedisAccess, settings: Mapping[str, Any]) -> Redis:
    login = {"username": access.sentinel_username, "password": access.sentinel_password}
    trust = _trust(access) if address.tls else {}
    asked = _Sentinels(  # type: ignore[no-untyped-call]  # redis-py's own
        address.places,
        sentinel_kwargs={**_COMMON, **login, **trust, "ssl": address.tls, "retry": _never()},
    )
    pool = _PrimaryPool(  # type: ignore[no-untyped-call]  # redis-py's own
        address.service,
        asked,
        connection_class=SentinelManagedSSLConnection if address.tls else SentinelManagedConnection,
        db=address.db,
        retry=_never(),
        **settings,
    )
    return Redis.from_pool(pool)


class _Sentinels(Sentinel):
    """redis-py's, which would wait for a silent sentinel until its caller's deadline, and never ask another."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        for sentinel in list(self.sentinels):
            with suppress(
                redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ResponseError, TimeoutError
            ):
                async with asyncio.timeout(ASK_S):
                    state = cast(Mapping[str, Any], await sentinel.sentinel_masters()).get(service_name)
                if state and self.check_master_state(state, service_name):
                    # First next time. Others ask meanwhile: moved by place, one would be lost, as in redis-py's own.
                    self.sentinels.remove(sentinel)
                    self.sentinels.insert(0, sentinel)
                    return state["ip"], state["port"]
        raise MasterNotFoundError(f"no sentinel knows a primary of {service_name!r} that is up")


class _PrimaryPool(SentinelConnectionPool):
    """redis-py's, which would leave the connections to the sentinels open when it is closed."""

    async def follow(self) -> None:
        """Connect anew where the sentinels name another primary than the one that was connected to last."""
        before = self.master_address
        now = await self.get_master_address()  # type: ignore[no-untyped-call]  # closes idle connections to another
        if now != before:
            await self.update_active_connections_for_reconnect()  # type: ignore[no-untyped-call]  # the same

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()
