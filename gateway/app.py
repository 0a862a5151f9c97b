"""The composition root: a Config becomes objects, and the objects an ASGI application.

    Config --build--> Gateway --lifespan--> running: registry polls, index writes, settler, ledger

Everything that runs in the background lives in one TaskGroup that the lifespan holds: when one part fails, the server
stops; when the server stops, the parts end in the order in which they depend on each other.
"""

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from backends import BackendError, EndpointId, PollSettings, Registry, UpstreamClient
from billing import BillingError, Quotas
from billing.prices.live import LivePrices
from gateway.admin import AdminParts
from gateway.config import Config, ConfigInvalid, Limits, admin_token, salt_secret
from gateway.cost_pages import cost_router
from gateway.data_plane import Edge, EdgeParts
from gateway.decision_log import DecisionLog
from gateway.disaggregation import Disaggregating, DisaggregationParts
from gateway.discovery.members import Discovering
from gateway.discovery_setup import DiscoveryParts, admin_file_of, discovering_of
from gateway.divergence.pages import lint_router
from gateway.divergence.watching import Watch
from gateway.edge.auth import KeysFileInvalid
from gateway.edge.labels import Labeller
from gateway.endpoint_pages import EndpointParts, endpoint_router
from gateway.engine_tokens import RemoteTokenizer
from gateway.event_feeds import EventFeedParts, EventFeeds
from gateway.exchange import Clocks
from gateway.fixes.setup import fixing_of
from gateway.fleet import Fleet
from gateway.health_watch import watch_of
from gateway.index_pages import IndexParts
from gateway.index_setup import carrier_of, client_of, index_of
from gateway.ledger_setup import ledger_of
from gateway.limits_parts import admission_of, keys_watch_of, limits_of, quotas_of, salt_rotation_of
from gateway.miss_reasons import MissReasons
from gateway.model_routes import Fallbacks, model_routes_of, route_router, works_of
from gateway.model_texts import load_model_texts
from gateway.next_turn import NextTurns
from gateway.options import authenticator_of, chooser_for, fleet_options, pipeline_options
from gateway.outcomes import Outcomes
from gateway.parity import ParityBook
from gateway.passthrough import Passthrough
from gateway.perf_book import PerfBook
from gateway.pipeline import Pipeline
from gateway.pipeline_parts import Parts
from gateway.planes import DataPlane, OwnPlane
from gateway.planning import Planner
from gateway.prewarm import Prewarmer, PrewarmParts
from gateway.price_pages import price_router, watch_prices
from gateway.queue_setup import QueueingParts, turns_of
from gateway.receipts import Receipts
from gateway.report_pages import report_router
from gateway.response_owners import ResponseOwners
from gateway.settling import Settler, SettlerParts
from gateway.starting import cost_parts, observe_turn, say_what_runs, tenant_pages_of, trust_again, unsalted
from gateway.status import StatusPages, StatusParts
from gateway.team.catching_up import caught_up
from gateway.team.member import Team, leads
from gateway.team_admin import admin_of
from gateway.telemetry import Telemetry
from gateway.templates.setup import templates_of
from gateway.tracing import running_tracer
from gateway.ui import UiParts, ui_of
from gateway.verifying import Verifying
from gateway.wire import Receive, Scope, Send
from prefix_index import PrefixIndexError, SharedIndex

_MS = 1000
_DRAIN_S = 2.0
STARTUP_ERRORS = (ConfigInvalid, KeysFileInvalid, BackendError, BillingError, PrefixIndexError, OSError)
"""What a wrong configuration or a missing file raises; each text says what would help."""


Work = Callable[[], Coroutine[object, object, None]]
"""What runs until the server stops."""


class Gateway:
    """The ASGI application: HTTP goes to the edge, the lifespan starts and stops the rest."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        team: Team | None = None,
        plane: DataPlane | None = None,
    ) -> None:
        """`team` is of a gateway of several workers, of which this is one; `plane` carries its calls, None: itself."""
        self._plane = plane or OwnPlane()
        self._config = config
        self._environment = environment
        self._team = team
        self._edge: Edge | None = None
        self.telemetry = Telemetry()
        self._admission = admission_of(config, self.telemetry)
        self.draining = False
        """Set by the server that is told to stop, where balancers are to hear of it."""
        self.stopping = False
        """Set by it once nothing more is accepted: what is under way has `limits.drain_s`."""

    @property
    def limits(self) -> Limits:
        """What the server that runs this is to keep to."""
        return self._config.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] == "http":
            assert self._edge is not None, "the server runs the lifespan first"
            await self._edge(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except STARTUP_ERRORS as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Build everything, run it, and take it down again in order. Raises `ConfigInvalid` for what cannot work."""
        async with AsyncExitStack() as stack:
            if self._team is not None:
                await stack.enter_async_context(self._team.joined())
            parts = await self._build(stack)
            say_what_runs(self._config)
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(parts.discovering.run())]
                await parts.discovering.looked(self._config.limits.connect_s)
                await parts.registry.begin(self._config.limits.connect_s)
                background += [group.create_task(work()) for work in parts.works]
                finishing = [group.create_task(part.run()) for part in (parts.settler, parts.next_turns)]
                if self._team is not None:
                    await caught_up(self._team, parts.registry, others_may_come=self._config.discovery.finds)
                yield
                parts.settler.close()
                parts.next_turns.close()
                await asyncio.gather(*finishing)
                await parts.quotas.drain(_DRAIN_S)
                for task in background:
                    task.cancel()
            await parts.index.drain()

    async def _build(self, stack: AsyncExitStack) -> "_Background":
        """All objects; what they hold open ends with `stack`."""
        config, clocks, telemetry, team, prompts = self._config, Clocks(), self.telemetry, self._team, Watch()
        authenticator = authenticator_of(config)
        prices, local = LivePrices(config.prices_file, clocks.wall), load_model_texts(config)
        tracer = await stack.enter_async_context(running_tracer(config, self._environment, telemetry))
        ledger = await stack.enter_async_context(ledger_of(config, self._environment, prices, telemetry.registry, team))
        carrier = await carrier_of(config, self._environment, stack, team)
        replica = f"{os.getpid()}-{secrets.token_hex(4)}"
        quotas = quotas_of(config, carrier, prices, replica)
        limits = limits_of(config, quotas, prices, telemetry, clocks)
        index = index_of(config, carrier, replica)
        client = await stack.enter_async_context(UpstreamClient(config.limits.connections_per_endpoint))
        registry = await stack.enter_async_context(
            Registry((), clocks.monotonic, settings=PollSettings(config.poll_interval_s, breaker=config.health.breaker))
        )
        receipts, parity = Receipts(index, telemetry, clocks.monotonic), ParityBook(telemetry)
        fleet_settings = fleet_options(config, authenticator)
        fleet = Fleet(registry, index, receipts, fleet_settings)
        perf = PerfBook(fleet_settings.speeds, telemetry.speed, clocks.monotonic, fleet.set_speed)
        health = watch_of(config, registry, fleet.slow_start, perf, telemetry.health, clocks.monotonic)
        feeds = EventFeeds(
            EventFeedParts(
                fleet, index, client, client_of(carrier), config.index.pool, replica, unsalted(config, authenticator)
            ),
            {},
        )
        fleet.follow_events(feeds.is_followed)
        fleet.ranks_found, options = perf.ranks_found, self._plane.options(pipeline_options(config, clocks.wall))
        misses = MissReasons(fleet, telemetry, prompts)
        prewarmer = Prewarmer(
            PrewarmParts(
                fleet, index, receipts, client, telemetry, clocks, options.deadlines, inject_salt=options.inject_salt
            ),
            config.scheduling.prewarm_prefixes if leads(team) else 0,
        )
        listeners: tuple[Callable[[EndpointId, int], None], ...] = (
            fleet.new_generation,
            perf.new_generation,
            feeds.new_generation,
            partial(trust_again, parity, fleet),
            prewarmer.new_generation,
            health.new_generation,
            misses.new_generation,
        )
        for listener in listeners:
            registry.subscribe(listener)
        planner = Planner(local, RemoteTokenizer(client, fleet.config_of), parity, salted=config.isolation == "salt")
        next_turns, fixing = (
            NextTurns(planner.text_of, partial(observe_turn, index, fleet), telemetry),
            fixing_of(config, planner, fleet, client_of(carrier), telemetry, clocks),
        )
        decisions, templates, responses = (
            DecisionLog(),
            templates_of(config, telemetry),
            ResponseOwners(client_of(carrier), config.index.pool),
        )
        routes = model_routes_of(config, fleet, responses, telemetry, clocks.monotonic)
        watch, turns = (
            keys_watch_of(config, authenticator, fleet, telemetry),
            turns_of(config, QueueingParts(registry, fleet, index, telemetry, clocks, lambda: self.stopping)),
        )
        splitting = Disaggregating(
            config,
            DisaggregationParts(
                *(registry, fleet, perf, receipts, client, telemetry, clocks, options.deadlines),
                *(chooser_for(config.scheduling, options.costs), turns, health.attempts, feeds.worked),
            ),
        )
        settler = Settler(
            SettlerParts(
                ledger=ledger,
                fleet=fleet,
                planner=planner,
                parity=parity,
                telemetry=telemetry,
                clocks=clocks,
                receipts=receipts,
                outcomes=Outcomes(decisions, telemetry),
                perf=perf,
                misses=misses,
                worked=feeds.worked,
                tracer=tracer,
                after=tuple(
                    filter(None, (splitting.truth.ended, fixing.settled, None if routes is None else routes.settled))
                ),
            )
        )
        pipeline = Pipeline(
            Parts(
                planner=planner,
                index=index,
                fleet=fleet,
                perf=perf,
                receipts=receipts,
                client=self._plane.engines(client, fleet),
                ledger=ledger,
                limits=limits,
                settler=settler,
                next_turns=next_turns,
                prewarmer=prewarmer,
                telemetry=telemetry,
                decisions=decisions,
                responses=responses,
                attempts=health.attempts,
                clocks=clocks,
                rng=random.Random(),  # noqa: S311 - spreads near-ties, keeps no secret
                tracer=tracer,
                turns=turns,
                splitter=splitting.splitter,
            ),
            options,
        )
        served = self._plane.serving(pipeline)
        verifying = Verifying(config, ledger, registry, telemetry, leads=leads(team))
        discovering = discovering_of(
            *(config, self._environment, clocks.monotonic),
            DiscoveryParts(
                *(registry, telemetry, fleet, perf, feeds, client),
                (prewarmer, misses, verifying, health, splitting),
                turns,
            ),
        )
        pages = StatusPages(
            StatusParts(
                *(fleet, planner, index, ledger, parity, feeds, telemetry, prices, limits, watch),
                admission=self._admission,
                discovering=discovering,
                health=health,
                draining=lambda: self.draining,
                team=team,
                gate=None if turns is None else turns.gate,
                templates=templates.store,
                routes=routes,
                plane_trouble=self._plane.trouble,
            )
        )
        index_parts = IndexParts(index, fleet, receipts, feeds, is_shared=config.index.redis_url is not None)
        reports, tenant_pages = tenant_pages_of(config, stack)
        endpoint_parts = EndpointParts(fleet, registry, discovering, prewarmer, admin_file_of(config), perf)
        admin_parts = AdminParts(
            decisions,
            parity,
            fleet,
            registry,
            index_parts,
            (
                endpoint_router(endpoint_parts),
                price_router(prices),
                cost_router(cost_parts(config, clocks.wall, options.costs, fleet, discovering)),
                verifying.router,
                report_router(reports),
                fixing.router,
                templates.router,
                route_router(routes),
                lint_router(prompts, prices, clocks.wall),
                splitting.router,
            ),
        )
        ui = ui_of(
            config,
            UiParts(
                *(admin_parts, endpoint_parts, perf, pages, reports, telemetry, clocks),
                gate=None if turns is None else turns.gate,
                draining=lambda: self.draining or self.stopping,
                team=team,
            ),
        )
        self._edge = Edge(
            EdgeParts(
                pipeline=served if routes is None else Fallbacks(served, routes),
                passthrough=Passthrough(
                    *(fleet, planner, client, responses, options.deadlines),
                    served_name=None if routes is None else routes.served_name,
                ),
                authenticator=authenticator,
                labeller=Labeller(salt_secret(config)),
                pages=pages,
                telemetry=telemetry,
                clocks=clocks,
                admission=self._admission,
                max_body_bytes=config.limits.max_body_bytes,
                tenant_pages=tenant_pages,
                client_salt=config.client_salt,
                fixer=fixing.fixer,
                routes=routes,
                templates=templates.calls,
                admin=admin_of(admin_token(config), admin_parts, pages, team, ui.also),
                ui=ui.mounted,
            )
        )
        return _Background(
            *(discovering, registry, index, next_turns, settler, quotas),
            (
                feeds.run,
                splitting.splitter.releaser.run,
                prewarmer.run,
                watch.run,
                salt_rotation_of(config, authenticator, partial(authenticator_of, config), prewarmer.forget).run,
                health.run,
                verifying.run,
                partial(watch_prices, prices, config.poll_interval_s),
                *fixing.works,
                *await works_of(config, routes, client_of(carrier)),
                templates.watch,
                *ui.works,
                *(() if turns is None else (turns.gate.run,)),
            ),
        )


@dataclass(frozen=True, slots=True)
class _Background:
    """What runs beside the requests."""

    discovering: Discovering
    registry: Registry
    index: SharedIndex
    next_turns: NextTurns
    settler: Settler
    quotas: Quotas
    also: tuple[Work, ...]

    @property
    def works(self) -> tuple[Work, ...]:
        """What runs until the server stops."""
        return (self.registry.run, self.index.run, self.quotas.run, *self.also)
