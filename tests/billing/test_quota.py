"""Asking and settling, whatever becomes of Redis; and the faults of budgets and limits that others have had (3g)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from redis.asyncio import Redis

from billing.errors import LedgerUnavailable
from billing.ledger import open_ledger
from billing.prices.book import PriceBook
from billing.quotas.counters import QuotaCounters
from billing.quotas.periods import purses_of
from billing.quotas.redis_counters import QuotaRedis
from billing.quotas.reserving import Down, QuotaOptions, Quotas, QuotaUnavailable
from billing.quotas.spending import Change, charged_pico, held_pico, spent_micro
from billing.quotas.types import Allowance, Budget, Granted, LimitKind, Per, Purse, Refused
from billing.types import Buckets
from prefix_index import Carrier, EmbeddedServer
from prefix_index.redis_clients import connect_one
from tests.billing.quotas import NOON, NOON_MS, TTL_MS, ask, outcome, pools, purse
from tests.billing.samples import opened, settled
from tests.prefix_index.busy import busy_loop
from tests.prefix_index.door import Door
from tests.until import until

DOLLAR = purse(1_000_000)


@dataclass
class Books:
    """A ledger that says what it is told to say."""

    spent: int = 0
    asked: list[str] = field(default_factory=list)
    fails: bool = False

    def __call__(self, tenant_id: str, one: Purse) -> int:
        self.asked.append(one.name)
        if self.fails:
            raise LedgerUnavailable("gone")
        return self.spent


@asynccontextmanager
async def quotas_at(url: str, books: Books, pool: str, options: QuotaOptions | None = None) -> AsyncIterator[Quotas]:
    async with connect_one(url) as client:
        shared = QuotaRedis(Carrier(client), pool, ttl_ms=TTL_MS, deadline_s=0.5)
        options = options or QuotaOptions(retry_s=0.02, beat_s=0.05)
        quotas = Quotas(shared, books, replica=str(id(client)), options=options)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(quotas.run())
            yield quotas
            await quotas.drain(5)
            running.cancel()


async def gone(door: Door) -> None:
    """Shut, and whoever was just coming in has left too."""
    await door.shut()
    for _ in range(20):
        await asyncio.sleep(0)
    await until(lambda: not door._streams)


async def spent_of(quotas: Quotas, one: Purse, name: str) -> int:
    """What the counter of a purse has."""
    answer = await quotas.admit(ask(name, (), [replace(one, limit_micro=10**15)]))
    assert isinstance(answer, Granted)
    quotas.give_back(ask(name, (), [one]))
    return answer.purses[0][0]


async def test_67_parallel_first_calls_of_an_unknown_tenant_are_all_under_its_budget(quota_url: str) -> None:
    books = Books(spent=100_000)
    async with quotas_at(quota_url, books, next(pools)) as quotas:
        wishes = (ask(f"r{number}", (), [DOLLAR], micro=50_000) for number in range(60))
        answers = await asyncio.gather(*map(quotas.admit, wishes))
    assert sum(isinstance(one, Granted) for one in answers) == 18
    assert books.asked == ["t:day"]


async def test_74_two_replicas_share_what_is_left(quota_url: str) -> None:
    pool, limit = next(pools), (Allowance(None, requests_per_minute=10),)
    async with quotas_at(quota_url, Books(), pool) as one, quotas_at(quota_url, Books(), pool) as other:
        answers = await asyncio.gather(*((one, other)[n % 2].admit(ask(f"r{n}", limit)) for n in range(30)))
    assert sum(isinstance(answer, Granted) for answer in answers) == 10


async def test_75_parallel_calls_do_not_pass_the_tokens_of_a_minute(quota_url: str) -> None:
    limit = (Allowance(None, tokens_per_minute=1000),)
    async with quotas_at(quota_url, Books(), next(pools)) as quotas:
        wishes = (ask(f"r{number}", limit, tokens=300) for number in range(20))
        answers = await asyncio.gather(*map(quotas.admit, wishes))
    assert sum(isinstance(answer, Granted) for answer in answers) == 3


def test_78_and_79_a_budget_refuses_nobody_before_it_is_spent_and_does_not_leak_back_within_its_period() -> None:
    counters, one = QuotaCounters(TTL_MS), purse(15_000_000)
    counters.start("acme", one, 400_000, NOON_MS)
    assert isinstance(counters.ask(ask("a", (), [one], micro=10_000), NOON_MS), Granted)
    counters.settle(outcome("a", [one], micro=14_600_000), NOON_MS)
    hours_later = NOON_MS + 11 * 3600 * 1000
    assert counters.ask(ask("b", (), [one], micro=1), hours_later) == Refused(LimitKind.BUDGET, 0, 1000, ())
    day = (Allowance(None, budgets=(Budget(15_000_000, Per.DAY),)),)
    (today,), (tomorrow,) = purses_of(day, NOON), purses_of(day, NOON + timedelta(days=1))
    assert today.name != tomorrow.name


@given(st.lists(st.tuples(st.integers(1, 900_000), st.integers(0, 2_000_000), st.booleans()), max_size=60))
def test_what_is_spent_and_held_is_never_more_than_a_budget_so_only_the_worst_beyond_holds_is_overspent(
    calls: list[tuple[int, int, bool]],
) -> None:
    counters, in_flight, spent = QuotaCounters(TTL_MS), list[tuple[str, int, int]](), 0
    counters.start("acme", DOLLAR, 0, NOON_MS)
    bound = 1_000_000
    for number, (held, cost, ends_first) in enumerate(calls):
        if ends_first and in_flight:
            name, one_cost, _ = in_flight.pop(0)
            counters.settle(outcome(name, [DOLLAR], micro=one_cost), NOON_MS)
            spent += one_cost
        before = sum(one_held for _, _, one_held in in_flight)
        answer = counters.ask(ask(str(number), (), [DOLLAR], micro=held), NOON_MS)
        if isinstance(answer, Granted):
            (so_far, all_held) = answer.purses[0]
            assert so_far == spent
            assert so_far + all_held <= 1_000_000
            in_flight.append((str(number), cost, all_held - before))
            bound = 1_000_000 + sum(max(0, cost - held) for _, cost, held in in_flight)
    assert spent + sum(cost for _, cost, _ in in_flight) <= bound


async def test_counters_that_redis_lost_begin_from_the_ledger_again(quota_url: str) -> None:
    books, pool = Books(), next(pools)
    async with quotas_at(quota_url, books, pool) as quotas, Redis.from_url(quota_url) as client:
        assert await spent_of(quotas, DOLLAR, "first") == 0
        books.spent = 700_000
        await quotas.drain(5)
        await client.delete(f"{{pgq:1:{pool}:acme}}:b:{DOLLAR.name}")
        assert await spent_of(quotas, DOLLAR, "second") == 700_000
    assert books.asked == [DOLLAR.name] * 2


async def test_a_ledger_that_cannot_be_read_refuses_and_holds_nothing(quota_url: str) -> None:
    books = Books(fails=True)
    async with quotas_at(quota_url, books, next(pools)) as quotas:
        with pytest.raises(LedgerUnavailable):
            await quotas.admit(ask("a", (), [DOLLAR], micro=10))
        books.fails = False
        assert await spent_of(quotas, DOLLAR, "b") == 0


async def test_a_client_that_leaves_while_redis_is_asked_leaves_no_hold(quota_url: str) -> None:
    door, limit = Door(quota_url), (Allowance(None, concurrent=1),)
    await door.choose_port()
    await door.open()
    try:
        async with quotas_at(door.url, Books(), next(pools), QuotaOptions()) as quotas:
            quotas.give_back(ask("warm"))
            await quotas.drain(5)
            door.hold()
            passed = door.passed_bytes
            leaving = asyncio.ensure_future(quotas.admit(ask("a", limit)))
            await until(lambda: door.passed_bytes != passed)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            door.release()
            await quotas.drain(5)
            assert isinstance(await quotas.admit(ask("b", limit)), Granted)
    finally:
        await gone(door)


async def test_a_busy_process_does_not_take_redis_for_away(quota_url: str) -> None:
    limit, pool = (Allowance(None, requests_per_minute=1000),), next(pools)
    async with connect_one(quota_url) as client, Carrier(client) as carrier:
        await QuotaRedis(carrier, pool, ttl_ms=TTL_MS, deadline_s=5.0).beat("r", 1000)  # connects, loads the library
        quotas = Quotas(QuotaRedis(carrier, pool, ttl_ms=TTL_MS, deadline_s=0.02), Books(), replica="r")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(quotas.run())
            async with busy_loop():
                for turn in range(6):
                    assert isinstance(await quotas.admit(ask(f"r{turn}", limit)), Granted)
                    quotas.give_back(ask(f"r{turn}", limit))
                await quotas.drain(5)
            running.cancel()
    assert (quotas.is_away, quotas.stand_in_answers, quotas.owed) == (False, 0, 0)


async def test_a_request_that_has_ended_does_not_count_against_the_next_one(quota_url: str) -> None:
    limit = (Allowance(None, concurrent=1),)
    async with quotas_at(quota_url, Books(), next(pools)) as quotas:
        for turn in range(50):
            assert isinstance(await quotas.admit(ask(f"r{turn}", limit)), Granted)
            quotas.give_back(ask(f"r{turn}", limit))


async def test_a_library_that_is_gone_is_loaded_again_and_costs_no_settlement() -> None:
    async with (
        EmbeddedServer() as server,
        quotas_at(server.url, Books(), next(pools)) as quotas,
        connect_one(server.url) as client,
    ):
        assert await spent_of(quotas, DOLLAR, "a") == 0
        await quotas.drain(5)
        await client.function_flush()
        quotas.settle(replace(outcome("b", [DOLLAR], micro=5), committed_ms=2**50))
        await quotas.drain(5)
        await client.function_flush()
        assert await spent_of(quotas, DOLLAR, "c") == 5
        await quotas.drain(5)
        assert (quotas.owed, quotas.dropped, quotas.is_away) == (0, 0, False)


async def test_what_is_spent_while_redis_is_away_is_charged_there_once_it_is_back(quota_url: str) -> None:
    options = QuotaOptions(retry_s=0.02, beat_s=0.05)
    async with quotas_at(quota_url, Books(), next(pools), options) as quotas, connect_one(quota_url) as client:
        await quotas.admit(ask("before", (), [DOLLAR], micro=200_000))
        await client.execute_command("CLIENT", "PAUSE", 1200, "ALL")  # type: ignore[no-untyped-call]
        quotas.settle(replace(outcome("before", [DOLLAR], micro=300_000), committed_ms=2**50))
        assert isinstance(await quotas.admit(ask("during", (), [DOLLAR], micro=200_000)), Granted)
        assert [quotas.is_away] == [True]
        quotas.settle(replace(outcome("during", [DOLLAR], micro=100_000), committed_ms=2**50))
        await until(lambda: not quotas.is_away)
        assert quotas.owed == 0
        assert await spent_of(quotas, DOLLAR, "after") == 400_000


async def test_a_settlement_that_redis_fails_over_does_not_keep_the_others(quota_url: str) -> None:
    pool = next(pools)
    async with quotas_at(quota_url, Books(), pool) as quotas, connect_one(quota_url) as client:
        assert await spent_of(quotas, DOLLAR, "a") == 0
        await quotas.drain(5)
        broken = purse(1_000_000, name="broken")
        await client.set(f"{{pgq:1:{pool}:acme}}:b:{broken.name}", "no hash")
        quotas.settle(replace(outcome("b", [broken], micro=5), committed_ms=2**50))
        quotas.settle(replace(outcome("c", [DOLLAR], micro=5), committed_ms=2**50))
        await quotas.drain(5)
        assert (quotas.owed, quotas.dropped, quotas.is_away) == (0, 1, False)
        assert await spent_of(quotas, DOLLAR, "d") == 5


async def test_counters_of_a_wrong_kind_do_not_fill_the_log(quota_url: str, caplog: pytest.LogCaptureFixture) -> None:
    pool, limit = next(pools), (Allowance(None, concurrent=1),)
    async with quotas_at(quota_url, Books(), pool) as quotas, connect_one(quota_url) as client:
        await client.set(f"{{pgq:1:{pool}:acme}}:holds", "no hash")
        answers = [await quotas.admit(ask(f"{number}", limit)) for number in range(20)]
        assert [isinstance(answer, Granted) for answer in answers] == [True] + [False] * 19
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_69_deny_is_deny(quota_url: str) -> None:
    door = Door(quota_url)
    await door.choose_port()
    async with quotas_at(door.url, Books(), next(pools), QuotaOptions(Down.DENY, retry_s=0.02)) as quotas:
        for name in "ab":
            with pytest.raises(QuotaUnavailable):
                await quotas.admit(ask(name, (Allowance(None, requests_per_minute=1),)))


async def test_replicas_without_redis_grant_their_share() -> None:
    pool, limit = next(pools), (Allowance(None, requests_per_minute=10),)
    async with (
        EmbeddedServer() as server,
        quotas_at(server.url, Books(), pool) as one,
        quotas_at(server.url, Books(), pool) as other,
    ):
        for name, quotas in (("a", one), ("b", other)):
            await quotas.admit(ask(name))
        await until(lambda: {one._counters.replicas, other._counters.replicas} == {2})
        await server.stop()
        let_in = [isinstance(await one.admit(ask(f"r{number}", limit)), Granted) for number in range(10)]
        assert let_in == [True] * 5 + [False] * 5


PRICES = """
currency: USD
prices:
  - {model: m, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 10, from: 2000-01-01,
     context_tiers: [{over_prompt_tokens: 1000, input_per_mtok: 2, cached_input_ratio: 0.1, output_per_mtok: 20}]}
"""


def test_68_a_hold_knows_the_price_tier_of_long_contexts_and_that_a_prompt_is_cached() -> None:
    book = PriceBook.parse(PRICES)
    assert held_pico(Buckets(1000, 0, 0, 10), "m", "t", NOON, book) == (1000 * 10**6 + 100 * 10**6, "USD")
    assert held_pico(Buckets(1, 1000, 0, 10), "m", "t", NOON, book) == (2 * 10**6 + 200 * 10**6 + 200 * 10**6, "USD")
    assert held_pico(Buckets(1, 0, 0, 1), "another", "t", NOON, book) is None


@given(st.lists(st.integers(0, 10**7), max_size=50))
def test_70_many_small_charges_add_up_to_what_the_ledger_has(amounts: list[int]) -> None:
    change = Change()
    counted = sum(change.whole_micro("t", "k", pico) for pico in amounts)
    assert counted == sum(amounts) // 10**6


async def test_the_ledger_says_what_was_spent_of_a_purse_by_a_tenant_and_by_a_key(where: Path | str) -> None:
    book = PriceBook.parse(PRICES)
    charged = 0
    async with open_ledger(where, book) as ledger:
        for number, key in enumerate(["k1", "k1", "k2"]):
            request = structs.replace(opened(f"r{number}"), opened_at=NOON, tenant_id="acme", key_id=key, model="m")
            ended = settled(f"r{number}")
            await ledger.open(request)
            await ledger.settle(ended)
            charged += (charged_pico(ended, "m", "acme", NOON, book) or 0) if key == "k1" else 0
    assert charged > 0
    of_key = spent_micro(where, "acme", purse(1, key_id="k1"), "USD")
    of_all = spent_micro(where, "acme", purse(1), "USD")
    assert of_key == charged // 10**6
    assert of_all == charged * 3 // 2 // 10**6
    assert spent_micro(where, "acme", replace(purse(1), end=NOON), "USD") == 0
    assert spent_micro(where, "globex", purse(1), "USD") == 0
    assert spent_micro(where, "acme", purse(1), "JPY") == 0
