"""The dashboard as configured, put together; without a token it is one sentence."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from gateway.admin import AdminParts, open_app
from gateway.config import Config, ledger_place, ui_token
from gateway.endpoint_pages import EndpointParts
from gateway.exchange import Clocks
from gateway.perf_book import PerfBook
from gateway.queueing.gate import Gate
from gateway.report_pages import ReportPages
from gateway.status import StatusPages
from gateway.team.member import Team
from gateway.team_admin import Also
from gateway.telemetry import Telemetry
from gateway.ui.answers import send_answer, text_answer
from gateway.ui.books import TenantBooks
from gateway.ui.caches import Caches
from gateway.ui.dashboard import Dashboard, DashboardParts
from gateway.ui.files import StaticFiles
from gateway.ui.inside import INSIDE, Inside
from gateway.ui.invoices import InvoicePreviews
from gateway.ui.live import Live, LiveParts
from gateway.ui.pages import Pages
from gateway.ui.session import Guesses, Sessions
from gateway.ui.threads import ledger_readers
from gateway.ui.traffic import TrafficBook
from gateway.ui.viewers import Bounds, Viewers
from gateway.wire import Mounted, Receive, Scope, Send

_OFF: Final = text_answer(
    "The dashboard is off: put a token of 16 characters or more into a file, and name that file as ui.token_file in "
    "the configuration.\n",
    404,
)


@dataclass(frozen=True, slots=True)
class UiParts:
    """What the dashboard looks at. `draining`: whether the gateway stops; `closing`: whether streams are to end now."""

    admin: AdminParts
    endpoints: EndpointParts
    perf: PerfBook
    pages: StatusPages
    reports: ReportPages
    telemetry: Telemetry
    clocks: Clocks
    gate: Gate | None
    draining: Callable[[], bool]
    team: Team | None


@dataclass(frozen=True, slots=True)
class Ui:
    """`also` answers the other workers; `works` run beside the requests."""

    mounted: Mounted
    also: Also | None = None
    works: tuple[Callable[[], Coroutine[object, object, None]], ...] = ()


def ui_of(config: Config, parts: UiParts) -> Ui:
    """The dashboard. Raises `ConfigInvalid` where its token cannot be used."""
    token = ui_token(config)
    if token is None:
        return Ui(Mounted(config.ui.path, _off))
    metrics, wall = parts.telemetry.ui, parts.clocks.wall
    inside = Inside(open_app(parts.admin), parts.team)
    caches = Caches(inside)
    live = Live(
        LiveParts(
            endpoints=parts.endpoints,
            perf=parts.perf,
            decisions=parts.admin.decisions,
            pages=parts.pages,
            telemetry=parts.telemetry,
            gate=parts.gate,
            draining=parts.draining,
            viewers=lambda: viewers.count,
            wall=wall,
            team=parts.team,
        ),
        inside,
        caches,
    )
    viewers = Viewers(live.collect, live.forget, parts.draining, metrics, Bounds(config.ui.max_viewers))
    threads = ledger_readers()
    invoices = InvoicePreviews.of(config, wall, threads)
    traffic = TrafficBook(ledger_place(config), wall, threads=threads)
    books = {**TenantBooks(parts.reports, wall).pages, **traffic.pages}
    dashboard = Dashboard(
        DashboardParts(
            path=config.ui.path,
            sessions=Sessions(token, config.ui.session_s, lambda: wall().timestamp()),
            guesses=Guesses(parts.clocks.monotonic),
            files=StaticFiles(),
            pages=Pages(live, inside, books, invoices.find),
            viewers=viewers,
            metrics=metrics,
            wall=wall,
            invoice=invoices.html,
        )
    )
    return Ui(Mounted(config.ui.path, dashboard), Also(INSIDE, live.serve), (viewers.run, caches.run))


async def _off(scope: Scope, _receive: Receive, send: Send) -> None:
    await send_answer(_OFF, scope, send)
