"""Fixes as configured: what the edge, the settler and the admin API are given."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from fastapi import APIRouter

from gateway.config import Config, ledger_place
from gateway.exchange import Clocks, Exchange
from gateway.fixes.book import FixBook
from gateway.fixes.fixer import Fixer
from gateway.fixes.orders import ToolOrders
from gateway.fixes.pages import FixPages, fix_router
from gateway.fixes.rules import rules_of
from gateway.fixes.shadow import Shadow
from gateway.fixes.types import Mode
from gateway.fleet import Fleet
from gateway.planning import Planner
from gateway.telemetry import Telemetry
from prefix_index import RedisClient


@dataclass(frozen=True, slots=True)
class Fixing:
    """`fixer` and `settled` are None where no rule does anything, so that a request is not even asked about."""

    fixer: Fixer | None
    settled: Callable[[Exchange], None] | None
    router: APIRouter
    works: tuple[Callable[[], Coroutine[object, object, None]], ...] = ()


def fixing_of(
    config: Config, planner: Planner, fleet: Fleet, redis: RedisClient | None, telemetry: Telemetry, clocks: Clocks
) -> Fixing:
    """The parts; `works` are to run until the server stops."""
    rules, book = rules_of(config.fixes), FixBook(telemetry.fixes)
    router = fix_router(FixPages(rules, book, ledger_place(config), clocks.wall))
    if not rules:
        return Fixing(None, None, router)
    orders = ToolOrders(redis, config.index.pool)
    shadow = Shadow(planner, fleet, orders, book)
    fixer = Fixer(rules, orders, shadow, book, random.Random())  # noqa: S311 - chooses a sample, keeps no secret
    watched = any(rule.mode is Mode.SHADOW for rule in rules)
    return Fixing(fixer, fixer.settled, router, (shadow.run,) if watched else ())
