"""Requests changed on their way, as the rules say: read, changed in their bytes, read again.

    no rule, or nothing to fix   the request as it is
    shadow                       the request as it is; some are measured beside the traffic     (shadow)
    safe, consented              fixed, or left alone and recorded as such, where it is of the share to compare with

All that follows (tokens, chain, what the engine gets) is of the body as it is then. Cost: a walk over the body in C,
and a second reading of it where it changed; a long body is dealt with in a thread.
"""

import asyncio
import random
from dataclasses import replace
from typing import Final

from gateway.edge.reading import Arrival, read_request
from gateway.errors import BadRequest
from gateway.exchange import Exchange
from gateway.fixes.book import FixBook
from gateway.fixes.finishes import finish_of
from gateway.fixes.fixing import fixed
from gateway.fixes.orders import ToolOrders
from gateway.fixes.rules import Rule, arm_of, rule_of
from gateway.fixes.shadow import Shadow
from gateway.fixes.tool_sets import order_for
from gateway.fixes.types import Fixed, How, Mode
from gateway.fixes.worth import worth
from gateway.log_lines import LOGGER
from gateway.types import Applied, Arm, InferenceRequest

LOOP_SAFE_FIXED_BYTES: Final = 32 * 1024
"""A body that may be changed and read again on the event loop: about 2 ms."""


class Fixer:
    """Applies the rules. One per process."""

    def __init__(
        self, rules: tuple[Rule, ...], orders: ToolOrders, shadow: Shadow, book: FixBook, rng: random.Random
    ) -> None:
        self._rules = rules
        self._orders = orders
        self._shadow = shadow
        self._book = book
        self._rng = rng

    async def fix(self, arrival: Arrival, request: InferenceRequest) -> InferenceRequest:
        """The request as it is to be served; it is labelled already. Never raises for what a client sent."""
        rule = rule_of(self._rules, request)
        if rule is None or request.blind is not None:
            return request
        if rule.mode is Mode.SHADOW:
            if self._rng.random() < rule.shadow_share:
                self._shadow.offer(arrival, request, rule)
            return request
        is_long = len(request.body) > LOOP_SAFE_FIXED_BYTES
        how = await order_for(self._orders, rule, request)
        done = await asyncio.to_thread(_fixed, request, how) if is_long else _fixed(request, how)
        if not done.fixes:
            return request
        applied = Applied(arm_of(request, rule.ab_share), done.fixes)
        if applied.arm is Arm.LEFT:
            self._book.applied(applied)
            return replace(request, fixes=applied)
        try:
            again = (
                await asyncio.to_thread(read_request, arrival, done.body)
                if is_long
                else read_request(arrival, done.body)
            )
        except BadRequest:
            LOGGER.error("a fixed body could not be read again", extra={"fields": {"request_id": request.id}})
            return request
        self._book.applied(applied)
        again = replace(again, model=request.model, routed=request.routed)
        return replace(again, user=None, labels=request.labels, fixes=applied)

    def settled(self, exchange: Exchange) -> None:
        """A request has ended; counted where it had something to fix. Once for each."""
        request, tee = exchange.request, exchange.tee
        if request.fixes is not None:
            usage = None if tee is None else tee.usage.result().usage
            finish = finish_of(None if tee is None else tee.kept())
            self._book.settled(request.tenant.id, request.fixes, usage, finish)


def _fixed(request: InferenceRequest, how: How) -> Fixed:
    """The body is only looked at where what was read of it may be in need of it."""
    needed = worth(request, how)
    return fixed(request.body, needed) if needed.fixes else Fixed(request.body)
