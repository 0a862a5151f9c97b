"""What everything else of a gateway stands on, opened before there is a fleet: stores, connections, keys, prices.

Config ──> prices, keys ──┐
  │                       ├──> ledger, quotas ──> limits
  └──> carrier of Redis ──┴──> index              registry, client of engines
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from backends import PollSettings, Registry, UpstreamClient
from billing import Ledger, Quotas
from billing.prices.live import LivePrices
from gateway.config import Config
from gateway.edge.auth import Authenticator
from gateway.exchange import Clocks
from gateway.index_setup import carrier_of, index_of
from gateway.ledger_setup import ledger_of
from gateway.limits import Limits
from gateway.limits_parts import limits_of, quotas_of
from gateway.options import authenticator_of
from gateway.team.member import Team
from gateway.telemetry import Telemetry
from gateway.tracing import Tracer, running_tracer
from prefix_index import Carrier, SharedIndex

__all__ = ["Ground", "ground_of"]


@dataclass(frozen=True, slots=True)
class Ground:
    """`replica`: this process among all that share a Redis. `carrier`: None without one; `tracer`: None where nobody
    wants spans."""

    authenticator: Authenticator
    prices: LivePrices
    tracer: Tracer | None
    ledger: Ledger
    carrier: Carrier | None
    replica: str
    quotas: Quotas
    limits: Limits
    index: SharedIndex
    client: UpstreamClient
    registry: Registry


async def ground_of(
    config: Config,
    environment: Mapping[str, str],
    stack: AsyncExitStack,
    telemetry: Telemetry,
    clocks: Clocks,
    team: Team | None,
) -> Ground:
    """Open all of it; `stack` closes it again. Raises what `STARTUP_ERRORS` of the composition root names."""
    authenticator, prices = authenticator_of(config), LivePrices(config.prices_file, clocks.wall)
    tracer = await stack.enter_async_context(running_tracer(config, environment, telemetry))
    ledger = await stack.enter_async_context(ledger_of(config, environment, prices, telemetry.registry, team))
    carrier = await carrier_of(config, environment, stack, team)
    replica = f"{os.getpid()}-{secrets.token_hex(4)}"
    quotas = quotas_of(config, carrier, prices, replica)
    polls = PollSettings(config.poll_interval_s, breaker=config.health.breaker)
    return Ground(
        authenticator=authenticator,
        prices=prices,
        tracer=tracer,
        ledger=ledger,
        carrier=carrier,
        replica=replica,
        quotas=quotas,
        limits=limits_of(config, quotas, prices, telemetry, clocks),
        index=index_of(config, carrier, replica),
        client=await stack.enter_async_context(UpstreamClient(config.limits.connections_per_endpoint)),
        registry=await stack.enter_async_context(Registry((), clocks.monotonic, settings=polls)),
    )
