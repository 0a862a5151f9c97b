"""From a ledger and a costs file to margins: sums that add up, and unknowns that are said."""

import asyncio
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing import Correction, CorrectionKind, SettlementState, Usage, open_ledger
from billing.economics import (
    Assumptions,
    ComparedPrice,
    CostBook,
    CostReport,
    PlanRevenue,
    cost_report,
    job_report,
    ledgers,
)
from billing.economics.discount import Worth
from billing.economics.margin import grouped, heaviest
from billing.errors import PeriodInvalid
from billing.money import PICO
from billing.when import to_us
from tests.billing.economics.fleet import ENDPOINT, Asked, costs, moment, rate, write
from tests.billing.samples import book, price

HOUR_S = 3600
S = 10**6


def account_for(path: Path, book: CostBook, until_s: float = HOUR_S, assumed: Assumptions | None = None) -> CostReport:
    with ledgers([path]) as opened:
        return cost_report(opened, book, to_us(moment(0)), to_us(moment(until_s)), assumed)


async def test_busy_and_idle_cost_are_what_the_endpoint_costs(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 0, 10), Asked("r2", 20, 20, "umbra", prefill_s=None)])
    found = account_for(ledger_path, costs())
    (endpoint,) = found.account.endpoints
    assert (endpoint.cost_pico, endpoint.idle_pico) == (HOUR_S * PICO, (HOUR_S - 30) * PICO)
    assert (endpoint.busy_us, endpoint.idle_us) == (30 * S, (HOUR_S - 30) * S)
    acme, umbra = found.by_tenant().values()
    assert (acme.spent.tokens_pico, acme.spent.unmeasured_pico) == (10 * PICO, 0)
    assert (umbra.spent.tokens_pico, umbra.spent.unmeasured_pico) == (0, 20 * PICO)
    assert acme.loaded_pico + umbra.loaded_pico == HOUR_S * PICO
    assert acme.loaded_pico == pytest.approx(HOUR_S * PICO / 3)


async def test_margins_are_revenue_less_cost_of_revenue(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 0, 10)], price("100000", "10000", "1000000"))
    whole = account_for(ledger_path, costs()).whole()
    charged = (200 * 100_000 + 800 * 10_000 + 100 * 1_000_000) * PICO // 10**6
    assert whole.revenue_pico == charged == 128 * PICO
    assert whole.busy_margin_pico == 118 * PICO
    assert whole.loaded_margin_pico == (128 - HOUR_S) * PICO
    assert whole.of_revenue(whole.busy_pico) == 10 / 128


async def test_a_cached_token_costs_less_than_a_fresh_one_and_not_nothing(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1")])
    spent = account_for(ledger_path, costs()).whole().spent
    assert 0 < spent.cached_pico / spent.cached_tokens < spent.fresh_pico / spent.fresh_tokens


async def test_calls_that_failed_cost_their_tenant_and_no_token(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", failed_at=("gpu-b",))])
    found = account_for(ledger_path, costs(rate(), rate("gpu-b")))
    spent = found.whole().spent
    assert (spent.lost_calls, spent.measured_calls) == (1, 1)
    assert spent.lost_pico == PICO
    assert found.account.cost_pico == 2 * HOUR_S * PICO


@pytest.mark.parametrize(
    "unknown",
    [
        Asked("r1", prefill_s=None),
        Asked("r1", decode_s=None),
        Asked("r1", usage=Usage(1000, None, 100)),
        Asked("r1", usage=Usage(None, None, None)),
        Asked("r1", usage=None),
    ],
)
async def test_what_is_unknown_of_a_call_is_counted_and_never_nothing(ledger_path: Path, unknown: Asked) -> None:
    await write(ledger_path, [unknown])
    spent = account_for(ledger_path, costs()).whole().spent
    assert (spent.measured_calls, spent.unmeasured_calls) == (0, 1)
    assert (spent.unmeasured_pico, spent.tokens_pico) == (10 * PICO, 0)
    assert spent.fresh_tokens == spent.cached_tokens == spent.output_tokens == 0


async def test_an_answer_of_one_token_has_no_decoding(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", usage=Usage(1000, 800, 1), decode_s=None)])
    spent = account_for(ledger_path, costs()).whole().spent
    assert (spent.measured_calls, spent.prefill_pico, spent.output_pico) == (1, 10 * PICO, 0)


async def test_time_without_a_rate_has_no_known_cost(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 0), Asked("r2", 1800), Asked("r3", 0, endpoint="gpu-x")])
    found = account_for(ledger_path, costs(rate(since=moment(900))))
    known, other = found.account.endpoints
    assert (known.cost_pico, known.unrated_us) == (2700 * PICO, 900 * S)
    assert (other.endpoint_id, other.cost_pico, other.unrated_us) == ("gpu-x", 0, HOUR_S * S)
    spent = found.whole().spent
    assert (spent.calls_without_rate, spent.measured_calls) == (2, 1)
    assert spent.cached_tokens == 800


async def test_idle_cost_of_an_endpoint_that_nobody_used_is_no_tenants(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1")])
    found = account_for(ledger_path, costs(rate(), rate("spare", 7200)))
    assert found.account.unborne_pico == 7200 * PICO
    assert found.whole().loaded_pico + found.account.unborne_pico == found.account.cost_pico


async def test_a_rate_that_changes_holds_from_its_moment_on(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 890, 20)])
    cheap, dear = rate(per_hour=3600), rate(per_hour=7200, since=moment(900))
    book = CostBook("USD", (replace(cheap, valid_to=moment(900)), dear))
    found = account_for(ledger_path, book)
    assert found.account.cost_pico == (900 + 2 * 2700) * PICO
    assert found.whole().busy_pico == (10 + 2 * 10) * PICO


async def test_a_call_at_the_edge_costs_where_its_time_lies_and_counts_where_it_ends(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 3595, 10)])
    with ledgers([ledger_path]) as opened:
        hours = [
            cost_report(opened, costs(), to_us(moment(at * HOUR_S)), to_us(moment((at + 1) * HOUR_S))).whole()
            for at in (0, 1)
        ]
    assert [one.busy_pico for one in hours] == [5 * PICO, 5 * PICO]
    assert [one.spent.measured_calls for one in hours] == [0, 1]


async def test_two_ledgers_of_gateways_that_share_an_endpoint_are_one_account(tmp_path: Path) -> None:
    paths = [tmp_path / "one.db", tmp_path / "two.db"]
    for name, path in zip("ab", paths, strict=True):
        await write(path, [Asked(f"r-{name}", 0, 10, tenant=f"tenant-{name}")])
    with ledgers(paths) as opened:
        found = cost_report(opened, costs(), to_us(moment(0)), to_us(moment(HOUR_S)))
    assert [one.busy_pico for one in found.by_tenant().values()] == [5 * PICO, 5 * PICO]
    assert found.account.endpoints[0].busy_us == 10 * S


async def test_a_discount_above_what_a_hit_saves_loses_money(ledger_path: Path) -> None:
    """Prefills of 1 s for 200 fresh tokens and 3 s for 600, so 1 s for 200 more; 2 x 800 cached ones avoid 8 s.

    20 s were busy: 4 for 4 s of prefill at the weight of 20 s in all, so a second of prefill costs 1. With idle time it
    costs 180, as the hour costs 3,600.
    """
    calls = [
        Asked("r1", 0, 8, usage=Usage(1000, 800, 100), prefill_s=1.0, decode_s=7.0),
        Asked("r2", 20, 12, usage=Usage(1400, 800, 100), prefill_s=3.0, decode_s=9.0),
    ]
    for per_mtok, worth in (("5000", Worth.EARNS), ("100000", Worth.EARNS_IF_SOLD), ("1000000", Worth.LOSES)):
        path = ledger_path.with_name(f"{per_mtok}.db")
        await write(path, calls, price(per_mtok, "0", "10"))
        (one,) = account_for(path, costs()).discounts
        assert one.given_pico == 1600 * int(per_mtok) * PICO // 10**6
        assert one.avoided_us == Fraction(8 * S)
        assert one.busy_pico == Fraction(8 * PICO)
        assert one.loaded_pico == Fraction(8 * 180 * PICO)
        assert one.worth is worth


@pytest.mark.parametrize(
    "calls",
    [
        [Asked("r1", usage=Usage(800, 800, 100))],
        [Asked("r1"), Asked("r2", 20)],
        [Asked("r1"), Asked("r2", 20, usage=Usage(1400, 800, 100), prefill_s=0.5)],
    ],
)
async def test_a_discount_is_of_unknown_worth_where_too_little_was_computed(
    ledger_path: Path, calls: list[Asked]
) -> None:
    await write(ledger_path, calls)
    (one,) = account_for(ledger_path, costs()).discounts
    assert one.worth is Worth.UNKNOWN


async def test_the_first_fill_is_paid_by_who_came_first(ledger_path: Path) -> None:
    def chain(names: str) -> bytes:
        return b"".join(name.encode() * 8 for name in names)

    await write(
        ledger_path,
        [
            Asked("r1", 0, tenant="acme", group="g", chain=chain("abcd"), usage=Usage(400, 0, 9)),
            Asked("r2", 20, tenant="umbra", group="g", chain=chain("abce"), usage=Usage(400, 300, 9)),
            Asked("r3", 40, tenant="umbra", group="g", chain=chain("abf"), usage=Usage(300, 100, 9)),
            Asked("r4", 60, tenant="alone", chain=chain("xyz"), usage=Usage(300, 100, 9)),
            Asked("r5", 80, tenant="umbra", group="g", chain=chain("q"), usage=Usage(100, None, 9)),
        ],
    )
    found = account_for(ledger_path, costs()).fills
    assert found.shared_groups == {"g"}
    assert {(key.tenant_id, tokens) for key, tokens in found.first.items() if key.share_group == "g"} == {
        ("acme", 400),
        ("umbra", 200),
    }
    assert {key.tenant_id: tokens for key, tokens in found.again.items()} == {"umbra": 100}
    assert {(use.filled_by, use.used_by): tokens for use, tokens in found.used.items()} == {
        ("acme", "umbra"): 400,
        ("", "alone"): 100,
    }
    assert found.unsaid == 1


async def test_an_api_is_compared_at_the_measured_mix_with_its_own_cached_price(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1")])
    per = PICO // 10**6
    api = ComparedPrice("theirs", "USD", 1000 * per, 10_000 * per, cached_input_pico=100 * per)
    full = ComparedPrice("no discount", "USD", 1000 * per, 10_000 * per)
    elsewhere = ComparedPrice("other money", "EUR", 1, 1)
    found = account_for(ledger_path, costs(), assumed=Assumptions(api_prices=[full, api, elsewhere]))
    cheap, dear = found.break_evens
    assert (cheap.price.name, cheap.api_pico) == ("theirs", (200 * 1000 + 800 * 100 + 100 * 10_000) * per)
    assert (dear.price.name, dear.api_pico) == ("no discount", (1000 * 1000 + 100 * 10_000) * per)
    assert not cheap.own_is_cheaper
    assert cheap.utilisation == Fraction(10 * PICO, cheap.api_pico)
    assert cheap.tokens_a_month == Fraction(HOUR_S * PICO * 73050, 100) / Fraction(cheap.api_pico, 1100)
    assert found.other_currency_prices == 1


async def test_a_job_is_its_calls_together(ledger_path: Path) -> None:
    await write(
        ledger_path,
        [
            Asked("r1", 0, 10, job="run-1"),
            Asked("r2", 100, 10, job="run-1"),
            Asked("r3", 200, 10, job="run-2", usage=Usage(1000, None, 100)),
            Asked("r4", 300, 10, tenant="umbra", job="run-1"),
            Asked("r5", 400, 10),
        ],
    )
    with ledgers([ledger_path]) as opened:
        found = job_report(opened, costs(), to_us(moment(0)), to_us(moment(HOUR_S))).jobs
        priced = job_report(opened, None, to_us(moment(0)), to_us(moment(HOUR_S)))
    assert set(found) == {("acme", "run-1"), ("acme", "run-2"), ("umbra", "run-1")}
    one = found["acme", "run-1"]
    assert (one.earned.requests, one.earned.prompt_tokens, one.earned.hit_share) == (2, 2000, 0.8)
    assert (one.busy_pico, one.revenue_pico) == (20 * PICO, 2 * (200 * 1_250_000 + 800 * 125_000 + 100 * 10_000_000))
    assert one.earned.last_us - one.earned.first_us == 100 * S  # type: ignore[operator]
    assert found["acme", "run-2"].earned.hit_share is None
    assert priced.currency == "USD"
    assert priced.jobs["acme", "run-1"].revenue_pico == one.revenue_pico


async def test_plans_bring_their_fees_and_the_heaviest_tenth_of_their_tenants_is_shown(ledger_path: Path) -> None:
    await write(
        ledger_path,
        [Asked("heavy", 0, 900, tenant="t-00", decode_s=890.0)]
        + [Asked(f"r{n}", 1000 + 20 * n, 1, tenant=f"t-{n:02}", decode_s=0.5) for n in range(1, 10)],
    )
    fees = [PlanRevenue(f"t-{n:02}", "flat", 20 * PICO) for n in range(10)]
    found = account_for(ledger_path, costs(), assumed=Assumptions(plans=fees))
    decile = heaviest(found.by_tenant())
    assert decile is not None
    assert decile.keys == ("t-00",)
    assert decile.heaviest.busy_margin_pico < 0 < decile.others.busy_margin_pico
    assert decile.others_count == 9
    assert heaviest({}) is None


async def test_users_of_a_tenant_are_told_apart_by_their_hash(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", user="h1"), Asked("r2", 20, user="h2"), Asked("r3", 40)])
    users = grouped(account_for(ledger_path, costs()).fine, lambda who: who.end_user)
    assert {user: one.busy_pico for user, one in users.items()} == {"h1": 10 * PICO, "h2": 10 * PICO}


async def test_revenue_in_another_currency_is_in_no_margin(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1")])
    whole = account_for(ledger_path, CostBook("EUR", (rate(),))).whole()
    assert whole.revenue_pico == 0
    assert whole.foreign_pico == {"USD": 200 * 1_250_000 + 800 * 125_000 + 100 * 10_000_000}
    assert whole.earned.requests == 1


async def test_what_has_no_price_and_what_was_interrupted_is_counted(ledger_path: Path) -> None:
    await write(
        ledger_path,
        [
            Asked("r1", model="unpriced"),
            Asked("r2", 20, state=SettlementState.INTERRUPTED, usage=None),
            Asked("r3", 40, state=SettlementState.FAILED, usage=None),
        ],
    )
    whole = account_for(ledger_path, costs()).whole()
    assert (whole.earned.unknown_amounts, whole.earned.interrupted, whole.earned.requests) == (1, 1, 3)


async def test_a_period_that_has_not_begun_is_refused(ledger_path: Path) -> None:
    await write(ledger_path, [])
    with pytest.raises(PeriodInvalid):
        account_for(ledger_path, costs(), until_s=0)


asked = st.builds(
    Asked,
    id=st.uuids().map(str),
    at_s=st.integers(-100, 7300).map(lambda tenth: tenth / 2),
    for_s=st.integers(0, 400).map(lambda tenth: tenth / 4),
    tenant=st.sampled_from(["acme", "umbra"]),
    model=st.sampled_from(["llama", "qwen"]),
    user=st.sampled_from([None, "h1"]),
    job=st.sampled_from([None, "j1", "j2"]),
    endpoint=st.sampled_from([ENDPOINT, "gpu-b", "gpu-x"]),
    usage=st.sampled_from([None, Usage(1000, 800, 100), Usage(10, None, 1), Usage(0, 0, 0)]),
    prefill_s=st.none() | st.floats(0, 50),
    decode_s=st.none() | st.floats(0, 50),
    state=st.sampled_from(list(SettlementState)),
    failed_at=st.sampled_from([(), ("gpu-c",)]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(asked, max_size=12), st.integers(1, 10**7), st.integers(1, HOUR_S))
def test_every_way_to_group_adds_up_to_what_the_endpoints_cost(
    tmp_path: Path, given_: list[Asked], per_hour: int, until_s: int
) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    asyncio.run(write(path, given_))
    book = costs(rate(per_hour=per_hour), rate("gpu-b", since=moment(1000)), rate("gpu-c", 7))
    found = account_for(path, book, until_s)
    account = found.account
    seconds = {ENDPOINT: until_s * per_hour, "gpu-b": max(until_s - 1000, 0) * 3600, "gpu-c": until_s * 7}
    assert account.cost_pico == pytest.approx(sum(seconds.values()) * PICO / 3600, abs=100)
    for one in account.endpoints:
        assert one.busy_pico + one.idle_pico == one.cost_pico
        assert one.busy_us + one.idle_us + one.unrated_us == until_s * S
        assert sum(one.loaded_pico.values()) in (0, one.idle_pico)
    for groups in (
        grouped(found.fine, lambda who: who.tenant_id),
        grouped(found.fine, lambda who: who.model),
        grouped(found.fine, lambda who: (who.end_user, who.job_id)),
    ):
        busy = sum(one.busy_pico for one in groups.values())
        assert busy + account.idle_pico == account.cost_pico
        assert sum(one.loaded_pico for one in groups.values()) + account.unborne_pico == account.cost_pico
        assert sum(one.earned.requests for one in groups.values()) == sum(0 <= one.at_s < until_s for one in given_)


async def test_a_correction_is_revenue_of_the_period_in_which_it_is_made(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", user="h1", job="j1")])
    credit = Correction(
        *("c1", moment(1800), "r1", "acme", "key-1", "llama", CorrectionKind.CREDIT, "a miss", "USD"), 0, -(10**9)
    )
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.correct(credit)
    with ledgers([ledger_path]) as opened:
        found = job_report(opened, costs(), to_us(moment(0)), to_us(moment(HOUR_S))).jobs["acme", "j1"]
    assert found.earned.charged_pico - found.revenue_pico == 10**9


async def test_without_traffic_there_is_nothing_to_be_even_with(ledger_path: Path) -> None:
    await write(ledger_path, [])
    api = ComparedPrice("theirs", "USD", 1, 1)
    (one,) = account_for(ledger_path, costs(), assumed=Assumptions(api_prices=[api])).break_evens
    assert (one.tokens_a_month, one.utilisation) == (None, None)


async def test_a_call_that_was_over_before_a_rate_began_is_in_no_later_hour(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", 3590, 5), Asked("r2", 7300, 5)])
    spent = account_for(ledger_path, costs(), until_s=3 * HOUR_S).whole().spent
    assert (spent.busy_pico, spent.measured_calls) == (10 * PICO, 2)
