"""Limits and budgets at the edge of a request: what it asks to have held, and what it is told.

    plan, match --> tokens and money as expected --> Quotas.admit --> Held, with headers for the answer
                                                                 `--> 429, with Retry-After
    settlement, durable --> tokens and money as they were --> Quotas.settle

Where a key and its tenant have no limits, nothing is computed and nobody is asked. Cached tokens count as expected
where the index has them confirmed: a long prompt in the cache is held at its cached price. A refusal that is sure to
hold for a while is remembered for a second, so that a flood costs neither tokens nor round trips.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from billing import (
    Ask,
    Buckets,
    LimitKind,
    Outcome,
    Periods,
    Purse,
    Quota,
    Quotas,
    QuotaUnavailable,
    Refused,
    Settlement,
    Usage,
)
from billing.prices.book import Prices
from billing.quotas.spending import Change, charged_pico, held_pico
from billing.quotas.types import MICRO_PICO, MOST_MICRO
from gateway.errors import BudgetSpent, GatewayError, LimitsUnavailable, ModelNotPriced, RateLimited
from gateway.limit_headers import limit_headers
from gateway.limit_metrics import LimitMetrics
from gateway.types import Headers, InferenceRequest, Plan, Route
from prefix_index import Match

_BYTES_PER_TOKEN: Final = 4
"""For prompts whose tokens are not known."""
_MOST_TOKENS: Final = 1 << 50
"""What a request is thought to need at most: Redis counts exactly up to 2^53."""
_REMEMBERED_S: Final = 1.0
_MOST_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What the configuration fixes."""

    unpriced: Literal["deny", "allow"] = "deny"
    default_output_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Held:
    """What is held for a request that was let in, and the headers that tell its client what is left."""

    ask: Ask
    quota: Quota
    key_id: str
    opened_at: datetime
    model: str
    headers: Headers
    limits: "Limits"

    def settle(self, settlement: Settlement, durable: asyncio.Future[None]) -> None:
        """Once the ledger has a settlement, its charge takes the place of the hold."""
        self.limits.settle(self, settlement, durable)

    def give_back(self) -> None:
        """The request came to nothing before the ledger had it."""
        self.limits.quotas.give_back(self.ask)

    def abandon(self) -> None:
        """Nobody will settle the request; its hold ends by itself."""
        self.limits.quotas.abandon(self.ask.request_id)


class Limits:
    """One per process. `wall` and `monotonic` are the clocks of the gateway."""

    def __init__(
        self,
        quotas: Quotas,
        prices: Prices,
        options: LimitOptions,
        metrics: LimitMetrics,
        *,
        wall: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.quotas = quotas
        self._prices = prices
        self._options = options
        self._metrics = metrics
        self._wall = wall
        self._monotonic = monotonic
        self._change = Change()
        self._periods = Periods()
        self._refused: dict[tuple[str, str, Route], tuple[float, GatewayError]] = {}

    @property
    def is_away(self) -> bool:
        """Whether limits are not shared at the moment, although there is a Redis."""
        return self.quotas.is_away

    def refuse_early(self, request: InferenceRequest) -> None:
        """Raises what a request of the same key was told less than a second ago, where that still holds."""
        if request.tenant.quota is None or not self._refused:
            return
        until_s, error = self._refused.get((request.tenant.id, request.tenant.key_id, request.route), (0.0, None))
        if error is not None and self._monotonic() < until_s:
            raise error.with_traceback(None)  # the same one each time: its trace would grow

    async def admit(self, request: InferenceRequest, plan: Plan, match: Match[str]) -> Held | None:
        """Hold what the request is expected to need; None where it is under no limits.

        Raises `RateLimited`, `BudgetSpent`, `ModelNotPriced`, `LimitsUnavailable`, or what a ledger that cannot be read
        raises.
        """
        quota = request.tenant.quota
        if quota is None:
            return None
        ask = self._ask(request, quota, plan, match)
        began_s = self._monotonic()
        try:
            answer = await self.quotas.admit(ask)
        except QuotaUnavailable:
            self._metrics.refused("unavailable").inc()
            raise LimitsUnavailable("limits cannot be checked at the moment; try again") from None
        finally:
            self._metrics.asking_s.observe(self._monotonic() - began_s)
        if isinstance(answer, Refused):
            raise self._refusal(request, ask, answer)
        headers = limit_headers(ask.allowances, answer.rooms, request.route, self._wall())
        return Held(ask, quota, request.tenant.key_id, request.opened_at, request.model, headers, self)

    def settle(self, held: Held, settlement: Settlement, durable: asyncio.Future[None]) -> None:
        """See `Held.settle`."""
        ask = held.ask
        pico = None
        if ask.purses:
            pico = charged_pico(settlement, held.model, ask.tenant_id, held.opened_at, self._prices)
        micro = None if pico is None else self._change.whole_micro(ask.tenant_id, held.key_id, pico)
        tokens: int | None = 0
        if settlement.state.billable:
            tokens = _weighted(settlement.usage, held.quota.cached_permille)
        outcome = Outcome(ask.request_id, ask.tenant_id, ask.purses, tokens, micro, 0)

        def tell(_: asyncio.Future[None]) -> None:
            self.quotas.settle(replace(outcome, committed_ms=int(self._wall().timestamp() * 1000)))

        durable.add_done_callback(tell)

    def show(self) -> None:
        """Bring the metrics up to date."""
        self._metrics.stand_in.stands_at(self.quotas.stand_in_answers)
        self._metrics.owed.set(self.quotas.owed)
        self._metrics.dropped.stands_at(self.quotas.dropped)

    def _ask(self, request: InferenceRequest, quota: Quota, plan: Plan, match: Match[str]) -> Ask:
        prompt, cached = expected_prompt(request, plan, match)
        output = 0
        if request.route is not Route.EMBEDDINGS:
            limit = request.max_output_tokens
            output = (self._options.default_output_tokens if limit is None else limit) * request.choices
            output = min(output, _MOST_TOKENS)
        purses = self._periods.purses_of(quota.allowances, request.opened_at) if quota.has_budget else ()
        micro = self._micro(request, purses, Buckets(prompt - cached, cached, 0, output)) if purses else 0
        tokens = prompt - cached + _part(cached, quota.cached_permille) + output
        return Ask(request.id, quota.tenant_id, quota.allowances, purses, tokens, micro)

    def _micro(self, request: InferenceRequest, purses: tuple[Purse, ...], buckets: Buckets) -> int:
        found = held_pico(buckets, request.model, request.tenant.id, request.opened_at, self._prices)
        comparable = found is not None and all(
            (purse.currency or self._prices.currency) == found[1] for purse in purses
        )
        if found is not None and comparable:
            return min(-(-found[0] // MICRO_PICO), MOST_MICRO)
        if self._options.unpriced == "deny":
            self._metrics.refused("unpriced").inc()
            raise ModelNotPriced(
                f"{request.model[:100]!r} has no price in the currency of this key's budget, so what a request costs "
                "cannot be counted; the operator must price it",
                param="model",
            )
        self._metrics.unpriced.inc()
        return 0

    def _refusal(self, request: InferenceRequest, ask: Ask, answer: Refused) -> GatewayError:
        kind = answer.kind
        self._metrics.refused(kind.name.lower()).inc()
        wait_s = max(1, math.ceil(answer.wait_ms / 1000))
        headers = limit_headers(ask.allowances, answer.rooms, request.route, self._wall())
        error: GatewayError
        if kind is LimitKind.BUDGET:
            purse = ask.purses[answer.at]
            wait_s = max(1, math.ceil((purse.end - self._wall()).total_seconds()))
            whose = _whose(ask.tenant_id, purse.key_id)
            error = BudgetSpent(f"the budget of {whose} is spent until {purse.end:%Y-%m-%dT%H:%MZ}", wait_s, headers)
        elif kind is LimitKind.BUDGET_HELD:
            whose = _whose(ask.tenant_id, ask.purses[answer.at].key_id)
            error = RateLimited(
                f"what is left of the budget of {whose} is held for its calls in flight", "budget", wait_s, headers
            )
        else:
            allowance = ask.allowances[answer.at]
            what, limit = {
                LimitKind.REQUESTS: ("requests a minute", allowance.requests_per_minute),
                LimitKind.TOKENS: ("tokens a minute", allowance.tokens_per_minute),
                LimitKind.CONCURRENT: ("requests at once", allowance.concurrent),
            }[kind]
            whose = _whose(ask.tenant_id, allowance.key_id)
            named = "concurrent_requests" if kind is LimitKind.CONCURRENT else kind.name.lower()
            error = RateLimited(
                f"rate limit of {whose} reached: {limit} {what}; try again in {wait_s} s", named, wait_s, headers
            )
        if kind in (LimitKind.REQUESTS, LimitKind.BUDGET):
            self._remember(request, error, answer.wait_ms / 1000)
        return error

    def _remember(self, request: InferenceRequest, error: GatewayError, wait_s: float) -> None:
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        until_s = self._monotonic() + min(wait_s, _REMEMBERED_S)
        self._refused[request.tenant.id, request.tenant.key_id, request.route] = (until_s, error)


def expected_prompt(request: InferenceRequest, plan: Plan, match: Match[str]) -> tuple[int, int]:
    """Tokens of a prompt, and how many of them some engine is known to have cached; by the bytes where nobody knows."""
    if plan.source is None:
        return -(-len(request.body) // _BYTES_PER_TOKEN), 0
    prompt = plan.chain.prompt_tokens
    blocks = max(match.blocks.values(), default=0)
    return prompt, max(0, min(blocks * plan.chain.block_size, prompt - 1))


def _weighted(usage: Usage | None, cached_permille: int) -> int | None:
    """Tokens towards the limit of a minute; None where the engine did not say."""
    if usage is None or usage.prompt_tokens is None:
        return None
    cached = max(0, min(usage.cached_tokens or 0, usage.prompt_tokens))
    return max(0, usage.prompt_tokens - cached + _part(cached, cached_permille) + (usage.output_tokens or 0))


def _part(tokens: int, permille: int) -> int:
    return -(-tokens * permille // 1000)


def _whose(tenant_id: str, key_id: str | None) -> str:
    return f"tenant {tenant_id}" if key_id is None else f"key {key_id}"
