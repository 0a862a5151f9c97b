"""Counters in Redis and in the process say the same, whatever is asked in which order."""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from billing.quotas.counters import SETTLED_MS, QuotaCounters
from billing.quotas.types import Allowance, Granted, LimitKind, Refused, Room, Unstarted
from tests.billing.quotas import NOON_MS, TTL_MS, ask, counters_in, outcome, purse

BOTH = (
    Allowance(None, requests_per_minute=6, tokens_per_minute=1000, concurrent=4),
    Allowance("k", requests_per_minute=3, tokens_per_minute=None, concurrent=2),
)
PURSES = (purse(5_000_000), purse(2_000_000, key_id="k"))

ASKING = st.tuples(st.just("ask"), st.integers(0, 1500), st.integers(0, 3_000_000))
SETTLING = st.tuples(
    st.just("settle"), st.none() | st.integers(0, 1500), st.none() | st.integers(0, 3_000_000), st.integers(0, 20)
)
WAITING = st.tuples(st.just("wait"), st.integers(1, 70_000))
RENEWING = st.tuples(st.just("renew"), st.integers(0, 20))


async def both_ways(url: str, steps: list[tuple[object, ...]]) -> None:
    local, now, asked = QuotaCounters(TTL_MS), NOON_MS, 0
    async with counters_in(url) as shared:
        for one in PURSES:
            local.start("acme", one, 0, NOON_MS)
            await shared.start("acme", one, 0, NOON_MS)
        for step in steps:
            match step:
                case ("ask", int(tokens), int(micro)):
                    asked += 1
                    wish = ask(f"r{asked}", BOTH, PURSES, tokens=tokens, micro=micro)
                    assert await shared.ask(wish, now) == local.ask(wish, now)
                case ("settle", tokens_used, micro_spent, int(which)):
                    told = outcome(f"r{which}", PURSES, tokens=tokens_used, micro=micro_spent)  # type: ignore[arg-type]
                    assert await shared.settle(told, now) == local.settle(told, now)
                case ("wait", int(ms)):
                    now += ms
                case ("renew", int(which)):
                    assert await shared.renew("acme", [f"r{which}"], now) == local.renew([f"r{which}"], now)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(ASKING, ASKING, SETTLING, WAITING, RENEWING), max_size=40))
@example([("ask", 0, 0), ("settle", None, None, 1), ("ask", 0, 0), ("wait", 70_000), ("ask", 0, 0)])
@example([("settle", None, None, 0), ("wait", 50_000), ("wait", 70_000), ("settle", None, None, 0)])
def test_redis_and_the_process_count_alike(quota_url: str, steps: list[tuple[object, ...]]) -> None:
    asyncio.run(both_ways(quota_url, steps))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 400)), max_size=60))
def test_no_sixty_seconds_ever_see_more_than_the_limits_of_a_minute(steps: list[tuple[int, int]]) -> None:
    counters, now = QuotaCounters(TTL_MS), NOON_MS
    limit = (Allowance(None, requests_per_minute=10, tokens_per_minute=1000),)
    let_in: list[tuple[int, int]] = []
    for number, (ms, tokens) in enumerate(steps):
        now += ms
        if isinstance(counters.ask(ask(str(number), limit, tokens=tokens), now), Granted):
            let_in.append((now, tokens))
    for begin, _ in let_in:
        window = [tokens for at, tokens in let_in if begin <= at < begin + 60_000]
        assert len(window) <= 10
        assert sum(window) <= 1000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 900_000), st.booleans()), max_size=60))
def test_a_budget_is_overspent_by_no_more_than_the_worst_of_a_lone_call(calls: list[tuple[int, bool]]) -> None:
    counters, open_calls, spent = QuotaCounters(TTL_MS), list[tuple[str, int]](), 0
    counters.start("acme", PURSES[0], 0, NOON_MS)
    for number, (micro, ends_first) in enumerate(calls):
        if ends_first and open_calls:
            name, cost = open_calls.pop()
            counters.settle(outcome(name, PURSES[:1], micro=cost), NOON_MS)
            spent += cost
        if isinstance(counters.ask(ask(str(number), (), PURSES[:1], micro=micro), NOON_MS), Granted):
            open_calls.append((str(number), micro))
    worst = spent + sum(cost for _, cost in open_calls)
    assert worst < 5_000_000 + 900_000


async def test_a_refusal_says_how_long_to_wait_and_then_it_is_so(quota_url: str) -> None:
    limit = (Allowance(None, requests_per_minute=2),)
    async with counters_in(quota_url) as counters:
        for name in "ab":
            assert isinstance(await counters.ask(ask(name, limit), NOON_MS), Granted)
        refused = await counters.ask(ask("c", limit), NOON_MS + 5_000)
        assert refused == Refused(LimitKind.REQUESTS, 0, 55_000, (Room(0, 55_000, None, 55_000),))
        assert isinstance(await counters.ask(ask("d", limit), NOON_MS + 59_999), Refused)
        assert isinstance(await counters.ask(ask("e", limit), NOON_MS + 60_000), Granted)


async def test_a_purse_that_was_never_begun_is_asked_for_and_begins_once(quota_url: str) -> None:
    async with counters_in(quota_url) as counters:
        wish = ask("a", (), PURSES, micro=10)
        assert await counters.ask(wish, NOON_MS) == Unstarted((0, 1))
        await counters.start("acme", PURSES[0], 7, NOON_MS)
        await counters.start("acme", PURSES[0], 9, NOON_MS)
        assert await counters.ask(wish, NOON_MS) == Unstarted((1,))
        await counters.start("acme", PURSES[1], 0, NOON_MS)
        assert await counters.ask(wish, NOON_MS) == Granted((), ((7, 10), (0, 10)))


async def test_what_the_ledger_had_before_a_purse_began_is_not_charged_again(quota_url: str) -> None:
    async with counters_in(quota_url) as counters:
        await counters.start("acme", PURSES[0], 100, NOON_MS)
        await counters.settle(outcome("early", PURSES[:1], micro=40, at_ms=0), NOON_MS + 1)
        await counters.settle(outcome("late", PURSES[:1], micro=40, at_ms=1), NOON_MS + 1)
        answer = await counters.ask(ask("a", (), PURSES[:1]), NOON_MS + 1)
        assert answer == Granted((), ((140, 0),))


async def test_a_request_is_charged_once_however_often_its_end_is_told(quota_url: str) -> None:
    async with counters_in(quota_url) as counters:
        await counters.start("acme", PURSES[0], 0, NOON_MS)
        await counters.ask(ask("a", (), PURSES[:1], micro=500), NOON_MS)
        told = [await counters.settle(outcome("a", PURSES[:1], micro=300), NOON_MS) for _ in range(3)]
        assert told == [True, False, False]
        assert await counters.ask(ask("b", (), PURSES[:1]), NOON_MS) == Granted((), ((300, 0),))


async def test_y_holds_that_nobody_renews_free_themselves(quota_url: str) -> None:
    limit = (Allowance(None, concurrent=1),)
    async with counters_in(quota_url) as counters:
        await counters.start("acme", PURSES[0], 0, NOON_MS)
        await counters.ask(ask("leaked", limit, PURSES[:1], micro=5_000_000), NOON_MS)
        await counters.renew("acme", ["leaked"], NOON_MS + 30_000)
        early = await counters.ask(ask("b", limit, PURSES[:1]), NOON_MS + TTL_MS)
        assert isinstance(early, Refused)
        assert early.kind is LimitKind.CONCURRENT
        late = await counters.ask(ask("c", limit, PURSES[:1], micro=1), NOON_MS + 30_000 + TTL_MS)
        assert late == Granted((Room(None, 0, None, 0),), ((0, 1),))


@pytest.mark.parametrize("lost", ["due", "holds"])
async def test_66_to_70_an_evicted_list_of_holds_holds_nothing_for_ever(quota_url: str, lost: str) -> None:
    async with counters_in(quota_url, pool := f"evicted {lost}") as counters:
        await counters.start("acme", PURSES[0], 0, NOON_MS)
        await counters.ask(ask("a", (), PURSES[:1], micro=4_000_000), NOON_MS)
        async with Redis.from_url(quota_url) as client:
            await client.delete(f"{{pgq:1:{pool}:acme}}:{lost}")
        answer = await counters.ask(ask("b", (), PURSES[:1], micro=4_000_000), NOON_MS)
        assert answer == Granted((), ((0, 4_000_000),))


async def test_money_beyond_what_a_double_adds_exactly_is_still_exact(quota_url: str) -> None:
    large = purse(9_000 * 10**12)
    async with counters_in(quota_url) as counters:
        await counters.start("acme", large, 2**53 - 10_000_000_000_000, NOON_MS)
        for number in range(3):
            await counters.settle(outcome(str(number), [large], micro=333_333_333_333), NOON_MS)
        answer = await counters.ask(ask("a", (), [large]), NOON_MS)
        assert isinstance(answer, Granted)
        assert answer.purses[0][0] == 2**53 - 10_000_000_000_000 + 999_999_999_999


async def test_every_key_of_a_tenant_has_a_time_to_live(quota_url: str) -> None:
    async with counters_in(quota_url, pool := "mortal") as counters:
        await counters.start("acme", PURSES[0], 0, NOON_MS)
        await counters.ask(ask("a", BOTH, PURSES[:1]), NOON_MS)
        async with Redis.from_url(quota_url) as client:
            keys = [key async for key in client.scan_iter(f"{{pgq:1:{pool}:acme}}:*")]
            assert len(keys) == 7
            assert all([await client.pttl(key) > 0 for key in keys])


def test_what_redis_counts_does_not_fill_the_memory_of_the_process() -> None:
    counters = QuotaCounters(TTL_MS)
    for number in range(1000):
        counters.settle(outcome(f"r{number}", PURSES), NOON_MS + number * 1000)
    assert len(counters._settled) <= SETTLED_MS // 1000
