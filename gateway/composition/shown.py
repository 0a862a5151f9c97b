"""Pages: those of the operator, of the dashboard, of tenants, and what they say of who joins and leaves."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gateway.admin import AdminParts
from gateway.composition.followed import Followed
from gateway.composition.opened import Opened
from gateway.composition.served import Served
from gateway.composition.types import Setting
from gateway.cost_pages import cost_router
from gateway.discovery.members import Discovering
from gateway.discovery_setup import DiscoveryParts, admin_file_of, discovering_of
from gateway.divergence.pages import lint_router
from gateway.endpoint_pages import EndpointParts, endpoint_router
from gateway.index_pages import IndexParts
from gateway.keys_watch import KeysWatch
from gateway.limits_parts import keys_watch_of
from gateway.model_routes import route_router
from gateway.price_pages import price_router
from gateway.report_pages import report_router
from gateway.starting import cost_parts, tenant_pages_of
from gateway.status import StatusPages, StatusParts, TenantPage
from gateway.team.member import leads
from gateway.ui import Ui, UiParts, ui_of
from gateway.verifying import Verifying


@dataclass(frozen=True, slots=True)
class Shown:
    """`status` is health, metrics and models; `keys` watches the keys file, whose state is on a page."""

    verifying: Verifying
    discovering: Discovering
    keys: KeysWatch
    status: StatusPages
    tenant_pages: Mapping[str, TenantPage]
    admin: AdminParts
    ui: Ui


def shown_in(setting: Setting, opened: Opened, followed: Followed, served: Served, stack: AsyncExitStack) -> Shown:
    """Compose them; what they hold open ends with `stack`."""
    config = setting.config
    verifying = Verifying(config, opened.ledger, opened.registry, setting.telemetry, leads=leads(setting.team))
    discovering = _discovering(setting, opened, followed, served, verifying)
    keys = keys_watch_of(config, opened.authenticator, followed.fleet, setting.telemetry)
    status = _status(setting, opened, followed, served, (discovering, keys))
    reports, tenant_pages = tenant_pages_of(config, stack)
    endpoints = EndpointParts(
        *(followed.fleet, opened.registry, discovering, followed.prewarmer, admin_file_of(config), followed.perf)
    )
    costs = cost_parts(config, setting.clocks.wall, followed.options.costs, followed.fleet, discovering)
    admin = AdminParts(
        *(served.decisions, followed.parity, followed.fleet, opened.registry),
        IndexParts(
            *(opened.index, followed.fleet, followed.receipts, followed.feeds),
            is_shared=config.index.redis_url is not None,
        ),
        (
            endpoint_router(endpoints),
            price_router(opened.prices),
            cost_router(costs),
            verifying.router,
            report_router(reports),
            served.fixing.router,
            served.templates.router,
            route_router(served.routes),
            lint_router(followed.prompts, opened.prices, setting.clocks.wall),
            served.splitting.router,
        ),
    )
    looked_at = UiParts(
        *(admin, endpoints, followed.perf, status, reports, setting.telemetry, setting.clocks),
        gate=None if served.turns is None else served.turns.gate,
        draining=lambda: setting.draining() or setting.stopping(),
        team=setting.team,
    )
    return Shown(verifying, discovering, keys, status, tenant_pages, admin, ui_of(config, looked_at))


def _discovering(
    setting: Setting, opened: Opened, followed: Followed, served: Served, verifying: Verifying
) -> Discovering:
    parts = DiscoveryParts(
        *(opened.registry, setting.telemetry, followed.fleet, followed.perf, followed.feeds, opened.client),
        (followed.prewarmer, followed.misses, verifying, followed.health, served.splitting),
        served.turns,
    )
    return discovering_of(setting.config, setting.environment, setting.clocks.monotonic, parts)


def _status(
    setting: Setting, opened: Opened, followed: Followed, served: Served, watching: tuple[Discovering, KeysWatch]
) -> StatusPages:
    discovering, keys = watching
    return StatusPages(
        StatusParts(
            *(followed.fleet, served.planner, opened.index, opened.ledger, followed.parity, followed.feeds),
            *(setting.telemetry, opened.prices, opened.limits, keys),
            admission=setting.admission,
            discovering=discovering,
            health=followed.health,
            draining=setting.draining,
            team=setting.team,
            gate=None if served.turns is None else served.turns.gate,
            templates=served.templates.store,
            routes=served.routes,
            plane_trouble=setting.plane.trouble,
        )
    )
