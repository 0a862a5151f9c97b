"""A setting becomes an edge and what runs beside it."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from backends import Registry
from billing import Quotas
from gateway.composition.followed import Followed, followed_in
from gateway.composition.opened import Opened, opened_in
from gateway.composition.served import Served, served_in
from gateway.composition.shown import Shown, shown_in
from gateway.composition.types import Setting, Work
from gateway.config import admin_token, salt_secret
from gateway.data_plane import Edge, EdgeParts
from gateway.discovery.members import Discovering
from gateway.edge.labels import Labeller
from gateway.limits_parts import salt_rotation_of
from gateway.model_routes import Fallbacks, works_of
from gateway.next_turn import NextTurns
from gateway.options import authenticator_of
from gateway.passthrough import Passthrough
from gateway.price_pages import watch_prices
from gateway.settling import Settler
from gateway.team_admin import admin_of
from prefix_index import SharedIndex


@dataclass(frozen=True, slots=True)
class Composed:
    """The application, the parts that have an order in which they begin and end, and all else that runs meanwhile."""

    edge: Edge
    discovering: Discovering
    registry: Registry
    index: SharedIndex
    next_turns: NextTurns
    settler: Settler
    quotas: Quotas
    works: tuple[Work, ...]


async def composed(setting: Setting, stack: AsyncExitStack) -> Composed:
    """All objects; what they hold open ends with `stack`. Raises what `STARTUP_ERRORS` lists."""
    opened = await opened_in(setting, stack)
    followed = followed_in(setting, opened)
    served = served_in(setting, opened, followed)
    shown = shown_in(setting, opened, followed, served, stack)
    return Composed(
        edge=_edge(setting, opened, followed, served, shown),
        discovering=shown.discovering,
        registry=opened.registry,
        index=opened.index,
        next_turns=served.next_turns,
        settler=served.settler,
        quotas=opened.quotas,
        works=await _works(setting, opened, followed, served, shown),
    )


def _edge(setting: Setting, opened: Opened, followed: Followed, served: Served, shown: Shown) -> Edge:
    config, routes = setting.config, served.routes
    return Edge(
        EdgeParts(
            pipeline=served.pipeline if routes is None else Fallbacks(served.pipeline, routes),
            passthrough=Passthrough(
                *(followed.fleet, served.planner, opened.client, served.responses, followed.options.deadlines),
                served_name=None if routes is None else routes.served_name,
            ),
            authenticator=opened.authenticator,
            labeller=Labeller(salt_secret(config)),
            pages=shown.status,
            telemetry=setting.telemetry,
            clocks=setting.clocks,
            admission=setting.admission,
            max_body_bytes=config.limits.max_body_bytes,
            tenant_pages=shown.tenant_pages,
            client_salt=config.client_salt,
            fixer=served.fixing.fixer,
            routes=routes,
            templates=served.templates.calls,
            admin=admin_of(admin_token(config), shown.admin, shown.status, setting.team, shown.ui.also),
            ui=shown.ui.mounted,
        )
    )


async def _works(
    setting: Setting, opened: Opened, followed: Followed, served: Served, shown: Shown
) -> tuple[Work, ...]:
    config, prewarmer = setting.config, followed.prewarmer
    rotation = salt_rotation_of(config, opened.authenticator, partial(authenticator_of, config), prewarmer.forget)
    return (
        opened.registry.run,
        opened.index.run,
        opened.quotas.run,
        followed.feeds.run,
        served.splitting.splitter.releaser.run,
        prewarmer.run,
        shown.keys.run,
        rotation.run,
        followed.health.run,
        shown.verifying.run,
        partial(watch_prices, opened.prices, config.poll_interval_s),
        *served.fixing.works,
        *await works_of(config, served.routes, opened.redis),
        served.templates.watch,
        *shown.ui.works,
        *(() if served.turns is None else (served.turns.gate.run,)),
    )
