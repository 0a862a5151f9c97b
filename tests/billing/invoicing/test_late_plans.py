"""What came late of a month is billed as if it had come in time: by the plan and the volume tiers of that month."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from billing import Usage, open_ledger
from billing.invoicing import Document, Drafting, Facts, LineKind, Period, credit_all, period_in, plans_from
from billing.invoicing.compose import LatePeriod
from billing.invoicing.documents import UsageEntry
from billing.invoicing.ledger_usage import PeriodUsage
from billing.invoicing.minor_units import exact_text, pico_of
from billing.prices.plans_file import parse_plans
from billing.prices.pricing import Bucket, VolumeTier
from tests.billing.invoicing.office import DECEMBER, NOVEMBER, SELLER, book_at, put, write
from tests.billing.samples import book, opened, price, rate, settled

IN_DECEMBER = datetime(2026, 12, 10, tzinfo=UTC)
IN_JANUARY = datetime(2027, 1, 10, tzinfo=UTC)
IN_FEBRUARY = datetime(2027, 2, 10, tzinfo=UTC)
JANUARY = period_in("2027-01", "UTC")
TIERED = replace(price("1"), volume_tiers=(VolumeTier(Bucket.INPUT, 100, rate("0.5")),))
PRICES = book(TIERED, price("3", model="other", id_="p2"))
PLANS = parse_plans("""
currency: USD
plans:
  - {id: team, monthly_fee: 20, minimum_commitment: 0.01, included: [{bucket: input, tokens: 50}]}
  - {id: over, included: [{bucket: input, tokens: 50, overage_per_mtok: 2}, {bucket: output, tokens: 9}]}
  - {id: pool, included_weighted: {tokens: 60, overage_per_mtok: 4, weights: {input: 1, cached_input: 0.1,
     cache_write: 1, output: 4}}}
tenants:
  team: [{plan: team, from: 2026-11-01, to: 2026-12-01}]
  over: [{plan: over, from: 2026-11-01, to: 2026-12-01}]
  pool: [{plan: pool, from: 2026-11-01, to: 2026-12-01}]
  acme: [{plan: team, from: 2026-11-01, to: 2026-12-01}]
""")

USED = UsageEntry(
    NOVEMBER.start_us, NOVEMBER.end_us, "llama", "p1", (10**6, 0, 0, 0), 1, 200, 0, 0, 0, full="0", charged="0.0002"
)

few = st.integers(0, 120)


@st.composite
def entries(draw: st.DrawFn) -> UsageEntry:
    priced = draw(st.sampled_from(PRICES.prices))
    rates = (priced.input_pico, priced.cached_input_pico or 0, priced.input_pico, priced.output_pico)
    tokens = draw(st.tuples(few, few, few, few))
    pico = sum(count * rate for count, rate in zip(tokens, rates, strict=True))
    start_us, end_us = NOVEMBER.start_us, NOVEMBER.end_us
    return UsageEntry(start_us, end_us, priced.model, priced.id, rates, 1, *tokens, full="0", charged=exact_text(pico))


lists = st.lists(entries(), max_size=3).map(tuple)


def beside(tenant: str, *used: UsageEntry) -> int:
    """What the invoice of the month has beside its usage."""
    facts = Facts(tenant, "USD", NOVEMBER, PeriodUsage(used))
    return sum(charge.pico for charge in plans_from(PLANS, PRICES)(facts).charges)


@given(st.sampled_from(["team", "over", "pool", "nobody"]), lists, lists, lists)
def test_a_month_costs_the_same_whenever_its_requests_were_settled(
    tenant: str, early: tuple[UsageEntry, ...], late: tuple[UsageEntry, ...], later: tuple[UsageEntry, ...]
) -> None:
    total = beside(tenant, *early)
    for billed, came in ((early, late), ((*early, *late), later)):
        of = LatePeriod(NOVEMBER.start_us, NOVEMBER.end_us, came, billed)
        charges = plans_from(PLANS, PRICES)(Facts(tenant, "USD", DECEMBER, PeriodUsage(), (of,))).charges
        total += sum(charge.pico for charge in charges)
        assert all(charge.of == of for charge in charges)
        assert all(one.tokens is None or one.tokens * (one.rate_pico or 0) == one.pico for one in charges)
    assert total == beside(tenant, *early, *late, *later)


def test_of_a_period_that_is_no_month_there_is_no_plan_to_come_late_to() -> None:
    of = LatePeriod(NOVEMBER.start_us, NOVEMBER.end_us - 1, (replace(USED, end_us=NOVEMBER.end_us - 1),))
    planned = plans_from(PLANS, PRICES)(Facts("team", "USD", DECEMBER, PeriodUsage(), (of,)))
    assert planned.charges == ()


async def test_late_usage_takes_what_the_month_included_and_counts_towards_its_minimum(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, PRICES) as ledger:
        await put(ledger, opened("1"), settled("1", Usage(30, 0, 0)), *(opened(name) for name in ("late", "later")))
        first = issued(ledger_path, NOVEMBER, IN_DECEMBER)
        await put(ledger, settled("late", Usage(30, 0, 0), at=IN_DECEMBER))
        second = issued(ledger_path, DECEMBER, IN_JANUARY)
        assert rows(second) == [
            ("llama, settled late: 2026-11-01 to 2026-11-30", "Input tokens", 30, "0.00003"),
            (
                "Plan: team, settled late: 2026-11-01 to 2026-11-30",
                "Included, of 50: input tokens, llama",
                20,
                "-0.00002",
            ),
            (
                "Plan: team, settled late: 2026-11-01 to 2026-11-30",
                "Minimum commitment, what is missing to it",
                None,
                "-0.00001",
            ),
        ]
        await put(ledger, settled("later", Usage(0, 0, 2_000), at=IN_JANUARY))
        third = issued(ledger_path, JANUARY, IN_FEBRUARY)
    in_time = ledger_path.with_name("in-time.db")
    usages = (Usage(30, 0, 0), Usage(30, 0, 0), Usage(0, 0, 2_000))
    records = [one for n, used in enumerate(usages) for one in (opened(str(n)), settled(str(n), used))]
    async with open_ledger(in_time, PRICES) as ledger:
        await put(ledger, *records)
    assert exact(first) + exact(second) + exact(third) == exact(issued(in_time, NOVEMBER, IN_DECEMBER))


def test_a_credited_invoice_with_late_usage_is_billed_again_to_the_same_amount(ledger_path: Path) -> None:
    office = Drafting(book_at(ledger_path, IN_FEBRUARY), SELLER, plans_from(PLANS, PRICES))
    write(ledger_path, PRICES, opened("1"), settled("1", Usage(30, 0, 0)))
    office.close(NOVEMBER, now_us=NOVEMBER.end_us)
    issue_all(ledger_path)
    write(ledger_path, PRICES, opened("late"), settled("late", Usage(30, 0, 0), at=IN_DECEMBER))
    office.close(DECEMBER, now_us=DECEMBER.end_us)
    (second,) = issue_all(ledger_path)
    write(ledger_path, PRICES, opened("later"), settled("later", Usage(30, 0, 0), at=IN_JANUARY))
    office.close(JANUARY, now_us=JANUARY.end_us)
    issue_all(ledger_path)
    book_at(ledger_path).credit(second.number, SELLER, lambda one, notes: credit_all(one, notes, "wrong buyer"))
    (again,) = office.draft("acme", DECEMBER)
    assert again.document.lines == second.lines
    assert len(rows(second)) == 3


def test_volume_tiers_are_of_whole_months(ledger_path: Path) -> None:
    write(ledger_path, PRICES, opened("1", tenant="zeta"), settled("1", Usage(300, 0, 0)))
    office = Drafting(book_at(ledger_path), SELLER, plans_from(None, PRICES))
    for period, has_tiers in (("2026-11", True), ("2026-11-15", False), ("2026-10-01/2026-12-01", False)):
        (found,) = office.draft("zeta", period_in(period, "UTC"))
        assert [line.description for line in found.document.lines[1:]] == [
            "Beyond 100 a month: input tokens, llama, difference to the price"
        ] * has_tiers
        assert any("Volume tiers" in note for note in found.document.notes) is not has_tiers


def issued(path: Path, period: Period, now: datetime) -> Document:
    office = Drafting(book_at(path, now), SELLER, plans_from(PLANS, PRICES))
    (draft,) = office.draft("acme", period)
    return book_at(path, now).issue(draft.id, SELLER).document


def issue_all(path: Path) -> list[Document]:
    with book_at(path).reading() as connection:
        drafts = book_at(path).drafts(connection, "seller")
    return [book_at(path, IN_FEBRUARY).issue(one.id, SELLER).document for one in drafts]


def rows(document: Document) -> list[tuple[str, str, int | None, str]]:
    kinds = (LineKind.USAGE, LineKind.LATE, LineKind.PLAN)
    return [(one.group, one.description, one.quantity, one.exact) for one in document.lines if one.kind in kinds]


def exact(document: Document) -> int:
    return sum(pico_of(line.exact) for line in document.lines if line.kind is not LineKind.ROUNDING)
