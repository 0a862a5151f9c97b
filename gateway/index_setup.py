"""Where the prefix index lives: the Redis that the configuration names, a private Valkey, or this process."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from gateway.config import Config, redis_access
from gateway.log_lines import LOGGER
from gateway.team.member import Team
from prefix_index import (
    Carrier,
    DegradedReason,
    EmbeddedServer,
    EmbeddedServerFailed,
    RedisClient,
    SharedIndex,
    SharedIndexOptions,
    connect,
    kept_running,
)

_MS = 1000


async def carrier_of(
    config: Config, environment: Mapping[str, str], stack: AsyncExitStack, team: Team | None = None
) -> Carrier | None:
    """What carries calls to the Redis of `_redis_of`, of the index and of limits together; None where there is none."""
    redis = await _redis_of(config, environment, stack, team)
    return None if redis is None else Carrier(redis)


def client_of(carrier: Carrier | None) -> RedisClient | None:
    """The client that it uses, for what is not called a thousand times a second."""
    return None if carrier is None else carrier.client


async def _redis_of(
    config: Config, environment: Mapping[str, str], stack: AsyncExitStack, team: Team | None
) -> RedisClient | None:
    """A client of the configured server, else of the private Valkey that workers share, else of one of our own; None
    where there is none of them."""
    settings = config.index
    if settings.redis_url is not None:
        return await stack.enter_async_context(connect(settings.redis_url, redis_access(settings, environment)))
    try:
        url = await private_redis_url(config, stack) if team is None else team.redis_url
    except EmbeddedServerFailed as error:
        LOGGER.warning("no private Valkey, so the prefix index lives in this process alone: %s", error)
        return None
    return None if url is None else await stack.enter_async_context(connect(url))


async def private_redis_url(config: Config, stack: AsyncExitStack) -> str | None:
    """The address of a private Valkey, which ends with `stack`; None where another is configured, or none wanted.

    Raises `EmbeddedServerFailed`.
    """
    settings = config.index
    if settings.redis_url is not None or not settings.embedded:
        return None
    return (await stack.enter_async_context(kept_running(EmbeddedServer(directory=settings.dir)))).url


def index_of(config: Config, carrier: Carrier | None, replica: str) -> SharedIndex:
    """The index on that server, else in this process alone: degraded, unless that is what was asked for."""
    settings = config.index
    options = SharedIndexOptions(
        deadline_s=settings.deadline_ms / _MS,
        speculative_s=settings.speculative_s,
        shards=settings.shards,
        max_bytes=settings.max_bytes,
    )
    return SharedIndex(
        carrier,
        pool=settings.pool,
        replica=replica,
        options=options,
        stand_in_reason=DegradedReason.UNREACHABLE if carrier is None and settings.embedded else None,
    )
