"""What holds something open while the gateway runs: files, connections, threads."""

import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass

from backends import PollSettings, Registry, UpstreamClient
from billing import Ledger, Quotas
from billing.prices.live import LivePrices
from gateway.composition.types import Setting
from gateway.edge.auth import Authenticator
from gateway.index_setup import carrier_of, client_of, index_of
from gateway.ledger_setup import ledger_of
from gateway.limits import Limits
from gateway.limits_parts import limits_of, quotas_of
from gateway.model_texts import load_model_texts
from gateway.options import authenticator_of
from gateway.tracing import Tracer, running_tracer
from prefix_index import RedisClient, SharedIndex
from prefix_index.prompt import ModelText


@dataclass(frozen=True, slots=True)
class Opened:
    """`replica` names this process among all that share one Redis; `redis` is None where there is none."""

    authenticator: Authenticator
    prices: LivePrices
    texts: dict[str, ModelText]
    tracer: Tracer | None
    ledger: Ledger
    redis: RedisClient | None
    replica: str
    quotas: Quotas
    limits: Limits
    index: SharedIndex
    client: UpstreamClient
    registry: Registry


async def opened_in(setting: Setting, stack: AsyncExitStack) -> Opened:
    """Open them; they are closed with `stack`, the last one first. Raises what `STARTUP_ERRORS` lists."""
    config, telemetry, team = setting.config, setting.telemetry, setting.team
    authenticator = authenticator_of(config)
    prices, texts = LivePrices(config.prices_file, setting.clocks.wall), load_model_texts(config)
    tracer = await stack.enter_async_context(running_tracer(config, setting.environment, telemetry))
    ledger = await stack.enter_async_context(ledger_of(config, setting.environment, prices, telemetry.registry, team))
    carrier = await carrier_of(config, setting.environment, stack, team)
    replica = f"{os.getpid()}-{secrets.token_hex(4)}"
    quotas = quotas_of(config, carrier, prices, replica)
    polling = PollSettings(config.poll_interval_s, breaker=config.health.breaker)
    client = await stack.enter_async_context(UpstreamClient(config.limits.connections_per_endpoint))
    return Opened(
        authenticator=authenticator,
        prices=prices,
        texts=texts,
        tracer=tracer,
        ledger=ledger,
        redis=client_of(carrier),
        replica=replica,
        quotas=quotas,
        limits=limits_of(config, quotas, prices, telemetry, setting.clocks),
        index=index_of(config, carrier, replica),
        client=client,
        registry=await stack.enter_async_context(Registry((), setting.clocks.monotonic, settings=polling)),
    )
