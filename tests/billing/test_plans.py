"""The bill of a month: fee, included tokens, overage, volume tiers, commitment. Exact to the pico-unit."""

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import PeriodInvalid, PricesInvalid
from billing.prices.plans import Allowance, Plan, Pool, Proration, is_month, statement_of
from billing.prices.plans_file import load_plans, parse_plans
from billing.prices.pricing import Bucket, VolumeTier
from billing.prices.tiers import BUCKETS, MonthSum, StatementKind, volume_lines

NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
MODELS = ("a", "b")

few = st.integers(0, 6)
heaps = st.tuples(few, few, few, few)
rates = st.tuples(*[st.integers(0, 9)] * 4)
models = st.none() | st.sets(st.sampled_from(MODELS), min_size=1).map(frozenset)


@st.composite
def tiers(draw: st.DrawFn) -> tuple[VolumeTier, ...]:
    found = []
    for bucket in BUCKETS:
        overs = draw(st.lists(st.integers(0, 12), max_size=2, unique=True))
        found += [VolumeTier(bucket, over, draw(st.integers(0, 9))) for over in sorted(overs)]
    return tuple(found)


@st.composite
def month_sums(draw: st.DrawFn) -> list[MonthSum]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        tokens, at = draw(heaps), draw(rates)
        charged = sum(count * rate for count, rate in zip(tokens, at, strict=True)) + draw(few)
        found.append(MonthSum(draw(st.sampled_from(MODELS)), f"p{number}", tokens, at, charged, draw(tiers())))
    return found


@st.composite
def allowances(draw: st.DrawFn) -> tuple[Allowance, ...]:
    found = []
    for bucket in BUCKETS:
        covered = draw(st.sampled_from([(), (None,), (frozenset("a"),), (frozenset("a"), frozenset("b"))]))
        found += [Allowance(bucket, draw(st.integers(0, 15)), one, draw(st.none() | few)) for one in covered]
    return tuple(found)


def tier_rate(total: MonthSum, bucket: Bucket, nth: int, plain: int) -> int:
    """What the nth token of a month costs, counted from 0."""
    passed = [tier.rate_pico for tier in total.volume_tiers if tier.bucket is bucket and nth >= tier.over_tokens]
    return passed[-1] if passed else plain


def token_by_token(plan: Plan | None, sums: Sequence[MonthSum]) -> int:
    """The oracle: each token stands alone and has one price."""
    pico = sum(
        one.charged_pico - sum(count * rate for count, rate in zip(one.tokens, one.rates_pico, strict=True))
        for one in sums
    )
    for place, bucket in enumerate(BUCKETS):
        tokens = [(number, one) for number, one in enumerate(sums) for _ in range(one.tokens[place])]
        settled: set[int] = set()
        for allowance in () if plan is None else plan.included:
            if allowance.bucket is bucket:
                mine = [at for at, (_, one) in enumerate(tokens) if allowance.covers(one.model)]
                dearest = sorted(mine, key=lambda at: -tokens[at][1].rates_pico[place])
                settled.update(dearest[: allowance.tokens])
                if allowance.overage_pico is not None:
                    pico += allowance.overage_pico * len(dearest[allowance.tokens :])
                    settled.update(mine)
        counted = dict.fromkeys(MODELS, 0)
        for at, (_, one) in enumerate(tokens):
            if at not in settled:
                pico += tier_rate(one, bucket, counted[one.model], one.rates_pico[place])
                counted[one.model] += 1
    return pico


@settings(deadline=None)
@given(month_sums())
def test_graduated_volume_tiers_price_each_token_by_its_place_in_the_month(sums: list[MonthSum]) -> None:
    statement = statement_of(None, sums)
    assert statement.pico == token_by_token(None, sums)
    for line in statement.lines:
        if line.kind is StatementKind.VOLUME:
            assert line.tokens is not None
            assert line.rate_pico is not None
            assert line.pico == line.tokens * line.rate_pico != 0


@settings(deadline=None)
@given(month_sums(), allowances(), few, st.integers(0, 60), st.integers(-20, 20))
def test_a_month_is_what_its_tokens_cost_one_by_one(
    sums: list[MonthSum], included: tuple[Allowance, ...], fee: int, minimum: int, corrections: int
) -> None:
    plan = Plan("p", "P", "USD", fee, minimum, included)
    statement = statement_of(plan, sums, corrections)
    used = token_by_token(plan, sums)
    assert statement.pico == fee + max(used, minimum - corrections)
    assert statement.pico - fee >= 0
    assert statement.pico == sum(line.pico for line in statement.lines)
    assert statement == statement_of(plan, sums, corrections)


@settings(deadline=None)
@given(month_sums(), st.tuples(*[st.sampled_from([0, 1, 5, 100, 1250])] * 4), st.integers(0, 40), few, models)
def test_a_pool_replaces_the_prices_of_what_it_covers(
    sums: list[MonthSum], milli: tuple[int, int, int, int], tokens: int, rate: int, covered: frozenset[str] | None
) -> None:
    fresh, cached, written, output = (Fraction(weight, 1000) for weight in milli)
    pool = Pool(tokens, (fresh, cached, written, output), rate * 1000, covered)
    statement = statement_of(Plan("p", "P", "USD", pool=pool), sums)
    inside = [one for one in sums if covered is None or one.model in covered]
    outside = [one for one in sums if one not in inside]
    weighted = sum(
        (Fraction(w, 1000) * count for one in inside for w, count in zip(milli, one.tokens, strict=True)), Fraction(0)
    )
    other = sum(
        one.charged_pico - sum(count * at for count, at in zip(one.tokens, one.rates_pico, strict=True))
        for one in inside
    )
    expected = max(weighted - tokens, Fraction(0)) * rate * 1000 + other + token_by_token(None, outside)
    assert statement.pico == expected


def test_included_tokens_are_given_back_where_they_cost_most() -> None:
    sums = [
        MonthSum("a", "cheap", (10, 0, 0, 0), (1, 0, 0, 0), 10),
        MonthSum("b", "dear", (4, 0, 0, 0), (5, 0, 0, 0), 20),
    ]
    statement = statement_of(Plan("p", "P", "USD", included=(Allowance(Bucket.INPUT, 6),)), sums)
    given = [(line.price_id, line.pico) for line in statement.lines if line.kind is StatementKind.INCLUDED]
    assert given == [("dear", -20), ("cheap", -2)]
    assert statement.of(StatementKind.USAGE, StatementKind.INCLUDED) == statement.pico == 8


def test_a_volume_tier_counts_over_the_prices_of_a_month() -> None:
    tier = (VolumeTier(Bucket.OUTPUT, 10, 6), VolumeTier(Bucket.OUTPUT, 20, 3))
    sums = [
        MonthSum("a", "before", (0, 0, 0, 8), (1, 1, 1, 9), 72, tier),
        MonthSum("a", "after", (0, 0, 0, 17), (1, 1, 1, 8), 136, tier),
    ]
    found = [(line.price_id, line.tokens, line.over_tokens, line.pico) for line in volume_lines(sums)]
    assert found == [("after", 10, 10, -20), ("after", 5, 20, -25)]


def test_an_unused_plan_costs_its_fee_and_its_minimum() -> None:
    statement = statement_of(Plan("p", "P", "USD", 500, 1000), [])
    assert [(line.kind, line.pico) for line in statement.lines] == [
        (StatementKind.FEE, 500),
        (StatementKind.COMMITMENT, 1000),
    ]


FILE = """
currency: USD
timezone: Asia/Tokyo
plans:
  - id: team
    name: Team
    monthly_fee: 500.00
    minimum_commitment: 1000
    proration: share
    included:
      - {bucket: input, tokens: 50000000, models: [llama], overage_per_mtok: 0.5}
      - {bucket: output, tokens: 5000001}
  - id: credits
    monthly_fee: 20
    included_weighted:
      tokens: 100000000
      weights: {input: 1, cached_input: 0.1, cache_write: 1.25, output: 4}
      overage_per_mtok: 1.20
tenants:
  acme:
    - {plan: credits, from: 2026-12-01T00:00+09:00}
    - {plan: team, from: 2026-11-16T00:00+09:00, to: 2026-12-01T00:00+09:00}
"""
TOKYO = ZoneInfo("Asia/Tokyo")


def month(number: int) -> tuple[datetime, datetime]:
    return datetime(2026, number, 1, tzinfo=TOKYO), datetime(2026, number + 1, 1, tzinfo=TOKYO)


def test_a_plans_file_says_who_has_which_plan_in_a_month() -> None:
    plans = parse_plans(FILE)
    assert plans.plan_of("acme", *month(10)) is None
    assert plans.plan_of("nobody", *month(11)) is None
    december = datetime(2026, 12, 1, tzinfo=TOKYO), datetime(2027, 1, 1, tzinfo=TOKYO)
    assert plans.plan_of("acme", *december) == plans.plans["credits"]
    assert plans.tenants_of(*month(11)) == {"acme"}
    assert plans.tenants_of(*month(10)) == frozenset()
    credits = plans.plans["credits"]
    assert credits.pool is not None
    assert credits.pool.weighted((10, 10, 4, 1)) == 10 + 1 + 5 + 4


def test_a_month_with_half_a_plan_costs_half_in_the_tenants_favour() -> None:
    half = parse_plans(FILE).plan_of("acme", *month(11))
    assert half is not None
    assert half.proration is Proration.SHARE
    assert half.monthly_fee_pico == 250 * 10**12
    assert half.minimum_pico == 500 * 10**12
    assert [one.tokens for one in half.included] == [25_000_000, 2_500_001]


def test_a_plan_is_by_the_calendar_month_of_its_time_zone() -> None:
    with pytest.raises(PeriodInvalid, match=r"acme has plan team, .* by the month in Asia/Tokyo: bill .* 2026-11"):
        parse_plans(FILE).plan_of("acme", NOVEMBER.replace(day=20), DECEMBER)
    with pytest.raises(PeriodInvalid, match="bill the whole month"):
        parse_plans(FILE).plan_of("acme", NOVEMBER, datetime.max.replace(tzinfo=UTC))
    assert is_month(NOVEMBER, DECEMBER, "UTC")
    assert not is_month(NOVEMBER, DECEMBER, "Asia/Tokyo")
    assert not is_month(NOVEMBER, datetime(2027, 1, 1, tzinfo=UTC), "UTC")
    berlin = ZoneInfo("Europe/Berlin")
    assert is_month(datetime(2026, 10, 1, tzinfo=berlin), datetime(2026, 11, 1, tzinfo=berlin), "Europe/Berlin")


def one(fields: str, rest: str = "") -> str:
    return f"currency: USD\nplans:\n  - {{{fields}}}\n{rest}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timezone: Mars/Olympus", "'Mars/Olympus': no time zone"),
        ("timezone: ../etc", "no time zone"),
        ("plan: 3", "unknown key 'plan'"),
        ("currency: XYZ", "XYZ is not in ISO 4217"),
        ("plans: [{id: p}]", "three capital letters"),
        (one("name: p"), "`id` is missing"),
        (one("id: p, monthly_fee: 1.005"), "USD has 2 decimal places"),
        (one("id: p, currency: JPY, monthly_fee: 0.5"), "JPY has 0 decimal places"),
        (one("id: p, monthly_fee: -1"), "must be between 0 and"),
        (one("id: p, proration: hourly"), "must be one of whole, share"),
        (one("id: p}\n  - {id: p"), "'p' is used twice"),
        (one("id: p, included: [{bucket: image, tokens: 1}]"), "must be one of input, cached_input"),
        (one("id: p, included: [{bucket: input, tokens: 0.5}]"), "whole number of tokens"),
        (one("id: p, included: [{bucket: input, tokens: 1, models: []}]"), "list of names"),
        (
            one("id: p, included: [{bucket: input, tokens: 1}, {bucket: input, tokens: 1, models: [a]}]"),
            "share a model",
        ),
        (one("id: p, included_weighted: {tokens: 1, weights: {input: 1}, overage_per_mtok: 1}"), "`cached_input` is"),
        (
            one(
                "id: p, included_weighted: {tokens: 1, overage_per_mtok: 0.000001,"
                " weights: {input: 1, cached_input: 0.1, cache_write: 1, output: 1}}"
            ),
            "multiple of 10 x 0.000001",
        ),
        (
            one(
                "id: p, included_weighted: {tokens: 1, overage_per_mtok: 1,"
                " weights: {input: 1, cached_input: 0.0001, cache_write: 1, output: 1}}"
            ),
            "at most 3 decimal places",
        ),
        (one("id: p, included: [{bucket: input, tokens: 1}], included_weighted: {}"), "not both"),
        (one("id: p", "tenants: {a: [{plan: q, from: 2026-11-01}]}"), "no plan 'q'"),
        (one("id: p", "tenants: {a: 3}"), "must be a list"),
        (one("id: p", "tenants: [a]"), "must be a mapping of tenants"),
        (one("id: p", "tenants: {a: [{plan: p, from: 2026-11-01}, {plan: p, from: 2026-12-01}]}"), "overlaps p"),
        (
            one("id: p", "tenants: {a: [{plan: p, from: 2026-11-01, to: 2026-12-05}, {plan: p, from: 2026-12-05}]}"),
            "change at the beginning of a month, in UTC",
        ),
    ],
)
def test_a_wrong_plans_file_says_what_and_where(text: str, message: str) -> None:
    with pytest.raises(PricesInvalid, match=message):
        parse_plans(text)


def test_a_plans_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "plans.yaml"
    path.write_text(FILE, "utf-8")
    assert load_plans(path) == parse_plans(FILE)
    with pytest.raises(PricesInvalid, match="cannot be read"):
        load_plans(tmp_path / "absent.yaml")


def test_an_empty_plans_file_has_no_plans() -> None:
    assert parse_plans("").plan_of("acme", NOVEMBER, DECEMBER) is None


@pytest.mark.parametrize(
    ("timezone", "begins", "changes"),
    [
        ("Asia/Tokyo", "2026-01-01", "9999-12-31T23:00"),
        ("America/New_York", "0001-01-01T00:00", "0001-01-01T01:00"),
    ],
)
def test_a_change_where_the_calendar_of_a_time_zone_ends_is_refused_in_words(
    timezone: str, begins: str, changes: str
) -> None:
    with pytest.raises(PricesInvalid, match="beginning of a month"):
        parse_plans(f"""
currency: USD
timezone: {timezone}
plans: [{{id: a}}, {{id: b}}]
tenants:
  acme:
    - {{plan: a, from: {begins}, to: {changes}}}
    - {{plan: b, from: {changes}}}
""")
