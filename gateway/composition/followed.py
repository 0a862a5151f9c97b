"""The fleet, and what is learned of it: how fast and how healthy it is, what its caches hold, what was missed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from backends import EndpointId
from gateway.composition.opened import Opened
from gateway.composition.types import Setting
from gateway.divergence.watching import Watch
from gateway.event_feeds import EventFeedParts, EventFeeds
from gateway.fleet import Fleet
from gateway.health_watch import HealthWatch, watch_of
from gateway.miss_reasons import MissReasons
from gateway.options import fleet_options, pipeline_options
from gateway.parity import ParityBook
from gateway.perf_book import PerfBook
from gateway.pipeline_parts import PipelineOptions
from gateway.prewarm import Prewarmer, PrewarmParts
from gateway.receipts import Receipts
from gateway.starting import trust_again, unsalted
from gateway.team.member import leads


@dataclass(frozen=True, slots=True)
class Followed:
    """`prompts` is what they part in; `options` are those of every request."""

    fleet: Fleet
    receipts: Receipts
    parity: ParityBook
    perf: PerfBook
    health: HealthWatch
    feeds: EventFeeds
    prompts: Watch
    misses: MissReasons
    prewarmer: Prewarmer
    options: PipelineOptions


def followed_in(setting: Setting, opened: Opened) -> Followed:
    """Compose them, and let them hear of endpoints that came back empty."""
    config, telemetry, clocks = setting.config, setting.telemetry, setting.clocks
    receipts, parity = Receipts(opened.index, telemetry, clocks.monotonic), ParityBook(telemetry)
    settings = fleet_options(config, opened.authenticator)
    fleet = Fleet(opened.registry, opened.index, receipts, settings)
    perf = PerfBook(settings.speeds, telemetry.speed, clocks.monotonic, fleet.set_speed)
    fleet.ranks_found = perf.ranks_found
    prompts, options = Watch(), setting.plane.options(pipeline_options(config, clocks.wall))
    followed = Followed(
        fleet=fleet,
        receipts=receipts,
        parity=parity,
        perf=perf,
        health=watch_of(config, opened.registry, fleet.slow_start, perf, telemetry.health, clocks.monotonic),
        feeds=_feeds(setting, opened, fleet),
        prompts=prompts,
        misses=MissReasons(fleet, telemetry, prompts),
        prewarmer=Prewarmer(
            PrewarmParts(
                *(fleet, opened.index, receipts, opened.client, telemetry, clocks, options.deadlines),
                inject_salt=options.inject_salt,
            ),
            config.scheduling.prewarm_prefixes if leads(setting.team) else 0,
        ),
        options=options,
    )
    for listener in _listeners(followed):
        opened.registry.subscribe(listener)
    return followed


def _feeds(setting: Setting, opened: Opened, fleet: Fleet) -> EventFeeds:
    parts = EventFeedParts(
        *(fleet, opened.index, opened.client, opened.redis, setting.config.index.pool, opened.replica),
        unsalted(setting.config, opened.authenticator),
    )
    feeds = EventFeeds(parts, {})
    fleet.follow_events(feeds.is_followed)
    return feeds


def _listeners(followed: Followed) -> tuple[Callable[[EndpointId, int], None], ...]:
    """Who hears of a new generation, the fleet first."""
    return (
        followed.fleet.new_generation,
        followed.perf.new_generation,
        followed.feeds.new_generation,
        partial(trust_again, followed.parity, followed.fleet),
        followed.prewarmer.new_generation,
        followed.health.new_generation,
        followed.misses.new_generation,
    )
