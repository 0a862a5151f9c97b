"""Drafts bill what the ledger has, once: through price edits, late settlements, corrections and closed periods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing import SettlementState, Usage, open_ledger, report
from billing.invoicing import (
    Document,
    Drafting,
    Facts,
    InvoiceInvalid,
    LineKind,
    Party,
    credit_all,
    document_json,
    draft,
    period_in,
    plans_from,
)
from billing.invoicing.ledger_usage import PeriodUsage
from billing.invoicing.minor_units import pico_of
from billing.prices.plans_file import parse_plans
from billing.prices.pricing import Bucket, VolumeTier
from billing.types import Correction, CorrectionKind
from billing.when import from_us, to_us
from tests.billing.invoicing.office import (
    AFTER,
    DECEMBER,
    NOVEMBER,
    SELLER,
    Written,
    book_at,
    drafted,
    invoiced,
    paying,
    put,
    write,
)
from tests.billing.samples import NOON, book, opened, price, rate, settled

IN_DECEMBER = datetime(2026, 12, 10, tzinfo=UTC)
JANUARY = period_in("2027-01", "UTC")
IN_JANUARY = datetime(2027, 1, 5, tzinfo=UTC)


def asked(name: str, usage: Usage | None = Usage(1_000, 900, 100), *, at: datetime = NOON) -> tuple[Written, Written]:  # noqa: B008 - frozen
    return opened(name, at=at), settled(name, usage, at=at + timedelta(seconds=2))


def correction(name: str, pico: int, *, at: datetime = NOON, request: str | None = "1") -> Correction:
    return Correction(name, at, request, "acme", "key-1", "llama", CorrectionKind.CREDIT, "our miss", "USD", 0, pico)


def exact(document: Document, *kinds: LineKind) -> int:
    return sum(pico_of(line.exact) for line in document.lines if line.kind in kinds)


def charged(path: Path) -> int:
    """All that the ledger has charged."""
    found = report(path, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC))
    return sum(line.tally.charged_pico or 0 for line in found.lines)


def test_a_row_is_tokens_times_the_price_of_a_model_and_a_kind(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"), *asked("2", Usage(500, None, 10)))
    found = drafted(ledger_path)
    rows = [(line.group, line.description, line.quantity, line.unit_price, line.exact) for line in found.lines]
    assert rows == [
        ("llama", "Input tokens", 600, "1.25", "0.00075"),
        ("llama", "Cached input tokens", 900, "0.125", "0.0001125"),
        ("llama", "Output tokens", 110, "10", "0.0011"),
    ]
    assert exact(found, LineKind.USAGE) == charged(ledger_path)
    assert found.prices == ("p1",)


USAGES = st.tuples(st.integers(0, 10**7), st.integers(0, 10**7) | st.none(), st.integers(0, 10**6) | st.none())
PERCENTS = st.none() | st.integers(0, 100)
PRICES = st.tuples(
    st.integers(0, 10**6), st.none() | st.integers(0, 100), st.integers(0, 10**6), st.none() | st.just("3.75")
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(USAGES, max_size=8), PRICES)
def test_rows_of_the_ledger_are_the_invoice_to_the_last_digit(
    tmp_path_factory: pytest.TempPathFactory,
    usages: list[tuple[int, int | None, int | None]],
    rates: tuple[int, int | None, int, str | None],
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    input_, percent, output, write_rate = rates
    cached = None if percent is None else f"{input_ * percent / 100:.2f}"
    prices = book(price(str(input_), cached, str(output), write_rate))
    records: list[Written] = []
    for number, (prompt, hit, answer) in enumerate(usages):
        usage = Usage(prompt, None if hit is None else min(hit, prompt), answer, min(7, prompt - min(hit or 0, prompt)))
        records += asked(str(number), usage)
    write(path, prices, *records)
    found = drafted(path)
    assert exact(found, LineKind.USAGE) == charged(path)
    assert sum(line.amount_minor for line in found.lines) + found.tax_minor == found.total_minor


def test_scenario_q_an_invoice_is_the_same_after_its_price_was_edited(ledger_path: Path) -> None:
    write(ledger_path, book(price("1.25")), *asked("1", Usage(10**6, 0, 10**6)))
    before = invoiced(ledger_path)
    write(ledger_path, book(price("99")), *asked("2", at=IN_DECEMBER))
    after = book_at(ledger_path).get("seller", before.document.number)
    assert document_json(after.document) == document_json(before.document)
    assert after.sha256 == before.sha256


def test_scenario_q_a_draft_of_the_past_is_the_same_after_a_price_was_edited(ledger_path: Path) -> None:
    write(ledger_path, book(price("1.25")), *asked("1", Usage(10**6, 0, 10**6)))
    before = drafted(ledger_path)
    write(ledger_path, book(price("99")))
    assert drafted(ledger_path) == before


def test_a_price_change_within_the_period_makes_rows_of_both_prices(ledger_path: Path) -> None:
    prices = book(price("1", valid_to=NOON), price("2", id_="p2", valid_from=NOON))
    write(ledger_path, prices, *asked("1", Usage(10, 0, 0), at=NOON - timedelta(hours=1)), *asked("2", Usage(10, 0, 0)))
    found = drafted(ledger_path)
    assert [(line.price_id, line.unit_price) for line in found.lines] == [("p1", "1"), ("p2", "2")]


def test_unknown_amounts_are_told_and_not_billed_as_nothing(ledger_path: Path) -> None:
    write(ledger_path, book(price(model="other")), *asked("1"), opened("2"))
    found = drafted(ledger_path)
    assert (found.lines, found.total_minor) == ((), 0)
    assert any("unknown: 1 request of llama" in note for note in found.notes)
    assert {(one.state, one.billed) for one in found.requests} == {("complete", False), ("in_flight", False)}


async def test_what_settles_after_the_invoice_is_in_the_next_one_with_its_period(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await put(ledger, *asked("1"), opened("late"))
        first = invoiced(ledger_path)
        assert any("had not ended: 1 request." in note for note in first.document.notes)
        await put(ledger, settled("late", Usage(10**6, 0, 0), at=IN_DECEMBER), *asked("3", at=IN_DECEMBER))
        second = invoiced(ledger_path, DECEMBER, now=IN_JANUARY)
    (late,) = [line for line in second.document.lines if line.kind is LineKind.LATE]
    assert (late.group, late.quantity) == ("llama, settled late: 2026-11-01 to 2026-11-30", 10**6)
    both = exact(first.document, LineKind.USAGE) + exact(second.document, LineKind.USAGE, LineKind.LATE)
    assert both == charged(ledger_path)
    assert not drafted(ledger_path, JANUARY).lines


def test_a_correction_is_a_row_with_its_request_and_is_billed_once(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"), correction("c1", -(10**10)))
    first = invoiced(ledger_path)
    (row,) = [line for line in first.document.lines if line.kind is LineKind.CORRECTION]
    assert (row.amount_minor, row.source, row.description) == (-1, "c1, request 1", "Credit: our miss")
    write(ledger_path, book(), correction("c2", -(3 * 10**10)))  # made in November, written after its invoice
    second = invoiced(ledger_path, DECEMBER, now=IN_JANUARY)
    assert second.document.corrections == ("c2",)
    assert second.document.total_minor < 0


def test_a_period_is_billed_once(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    first = invoiced(ledger_path)
    with pytest.raises(InvoiceInvalid, match=f"{first.document.number} bills acme"):
        drafted(ledger_path)
    day = period_in("2026-11-15", "UTC")
    with pytest.raises(InvoiceInvalid, match="a part of that period already"):
        drafted(ledger_path, day)


def test_two_drafts_of_overlapping_periods_do_not_both_become_invoices(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    office = Drafting(book_at(ledger_path), SELLER)
    (month,) = office.draft("acme", NOVEMBER)
    (day,) = office.draft("acme", period_in("2026-11-15", "UTC"))
    book_at(ledger_path).issue(day.id, SELLER)
    with pytest.raises(InvoiceInvalid, match="already"):
        book_at(ledger_path).issue(month.id, SELLER)


async def test_a_closed_period_keeps_its_drafts_and_sends_what_comes_late_to_the_next(ledger_path: Path) -> None:
    office = Drafting(book_at(ledger_path), SELLER)
    async with open_ledger(ledger_path, book()) as ledger:
        await put(ledger, *asked("1"), opened("late"), opened("z", tenant="zeta"), settled("z"))
        frozen = office.close(NOVEMBER, now_us=to_us(AFTER))
        assert [(one.document.tenant_id, one.frozen) for one in frozen] == [("acme", True), ("zeta", True)]
        await put(ledger, settled("late", Usage(10**6, 0, 0), at=AFTER))
    with pytest.raises(InvoiceInvalid, match="is closed"):
        office.draft("acme", NOVEMBER)
    assert drafted(ledger_path, DECEMBER).lines[0].kind is LineKind.LATE
    issued = book_at(ledger_path).issue(frozen[0].id, SELLER)
    assert exact(issued.document, LineKind.USAGE) == exact(frozen[0].document, LineKind.USAGE)
    assert drafted(ledger_path, DECEMBER).lines[0].quantity == 10**6


def test_a_tenant_without_usage_at_the_close_has_its_late_usage_in_the_next_period(ledger_path: Path) -> None:
    write(ledger_path, book())
    office = Drafting(book_at(ledger_path), SELLER)
    assert office.close(NOVEMBER, now_us=to_us(AFTER)) == []
    write(ledger_path, book(), *asked("1"))
    found = drafted(ledger_path, DECEMBER)
    assert exact(found, LineKind.LATE) == charged(ledger_path)


def test_a_period_is_closed_once_and_not_before_its_end(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    office = Drafting(book_at(ledger_path), SELLER)
    with pytest.raises(InvoiceInvalid, match="can be closed then"):
        office.close(DECEMBER, now_us=to_us(AFTER))
    office.close(NOVEMBER, now_us=to_us(AFTER))
    with pytest.raises(InvoiceInvalid, match="closed already"):
        office.close(period_in("2026-11-15", "UTC"), now_us=to_us(AFTER))


def test_after_a_note_over_all_of_it_a_closed_period_is_billed_anew_as_it_was(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"), correction("c1", -(10**10)))
    office = Drafting(book_at(ledger_path), SELLER)
    (frozen,) = office.close(NOVEMBER, now_us=to_us(AFTER))
    first = book_at(ledger_path).issue(frozen.id, SELLER)
    write(ledger_path, book(), *asked("2"))  # late: not for November any more
    book_at(ledger_path).credit(
        first.document.number, SELLER, lambda document, earlier: credit_all(document, earlier, "wrong buyer")
    )
    renamed = paying(buyers={"acme": Party("acme", "Acme Holding")})
    (again,) = Drafting(book_at(ledger_path), renamed).draft("acme", NOVEMBER)
    assert again.document.buyer.name == "Acme Holding"
    assert again.document.lines == first.document.lines
    assert book_at(ledger_path).issue(again.id, renamed).document.number == "2026-000003"


def test_two_currencies_of_a_tenant_are_two_invoices(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    euros = Correction("c1", NOON, None, "acme", None, None, CorrectionKind.ADJUSTMENT, "old debt", "EUR", 0, 10**13)
    write(ledger_path, book(), euros)
    found = Drafting(book_at(ledger_path), SELLER).draft("acme", NOVEMBER)
    assert [one.document.currency for one in found] == ["USD", "EUR"]


PLANS = """
currency: USD
plans:
  - {id: scale, name: Scale, monthly_fee: 20, minimum_commitment: 30, included: [{bucket: input, tokens: 50}]}
tenants:
  acme: [{plan: scale, from: 2026-11-01}]
  zeta: [{plan: scale, from: 2026-11-01}]
"""


def test_a_plan_adds_its_fee_what_it_includes_and_what_is_missing_to_its_minimum(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1", Usage(100, 0, 0)))
    seller = paying(taxes_of={LineKind.PLAN: "reduced"})
    office = Drafting(book_at(ledger_path), seller, plans_from(parse_plans(PLANS), book()))
    (found,) = office.draft("acme", NOVEMBER)
    rows = {line.description: line.exact for line in found.document.lines if line.kind is LineKind.PLAN}
    assert rows == {
        "Monthly fee": "20",
        "Included, of 50: input tokens, llama": "-0.0000625",
        "Minimum commitment, what is missing to it": "29.9999375",
    }
    assert [(tax.id, tax.net_minor) for tax in found.document.taxes] == [("standard", 0), ("reduced", 5000)]
    drafts = office.close(NOVEMBER, ("acme", "zeta"), now_us=to_us(AFTER))
    assert [(one.document.tenant_id, one.document.net_minor) for one in drafts] == [("acme", 5000), ("zeta", 5000)]


def test_failed_requests_are_counted_and_not_billed(ledger_path: Path) -> None:
    write(ledger_path, book(), opened("1"), settled("1", state=SettlementState.FAILED))
    found = drafted(ledger_path)
    assert (found.lines, found.requests[0].state, found.requests[0].billed) == ((), "failed", False)


def test_the_cache_section_tells_what_was_saved_and_how_much_engines_reported(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"), *asked("2", Usage(1_000, None, 0)))
    (found,) = drafted(ledger_path).cache
    assert (found.prompt_tokens, found.cached_tokens) == (2_000, 900)
    assert (found.reported_prompt_tokens, found.reported_cached_tokens) == (1_000, 900)
    assert pico_of(found.full) - pico_of(found.charged) == pico_of(found.saved) == 900 * (1_250_000 - 125_000)


def test_a_month_is_that_of_the_sellers_clocks_also_across_a_change_of_the_time(ledger_path: Path) -> None:
    october = period_in("2026-10", "Europe/Berlin")
    assert from_us(october.end_us) - from_us(october.start_us) == timedelta(days=31, hours=1)
    assert (october.start_text, october.end_text) == ("2026-10-01 00:00", "2026-11-01 00:00")
    last = datetime(2026, 10, 31, 22, 59, 59, tzinfo=UTC)
    write(ledger_path, book(), *asked("1", at=last), *asked("2", at=last + timedelta(seconds=1)))
    assert drafted(ledger_path, october).requests[0].requests == 1


def test_volume_tiers_and_overage_are_rows_with_their_thresholds(ledger_path: Path) -> None:
    tiered = replace(price("1"), volume_tiers=(VolumeTier(Bucket.INPUT, 100, rate("0.5")),))
    write(ledger_path, book(tiered), *asked("1", Usage(300, 0, 0)))
    (found,) = Drafting(book_at(ledger_path), SELLER, plans_from(None, book(tiered))).draft("acme", NOVEMBER)
    assert [(line.group, line.description, line.exact) for line in found.document.lines] == [
        ("llama", "Input tokens", "0.0003"),
        ("Volume tiers", "Beyond 100 a month: input tokens, llama, difference to the price", "-0.0001"),
    ]
    beyond = PLANS.replace("tokens: 50", "tokens: 50, overage_per_mtok: 2")
    (planned,) = Drafting(book_at(ledger_path), SELLER, plans_from(parse_plans(beyond), book())).draft("acme", NOVEMBER)
    assert "Beyond 50 included: input tokens, llama" in [line.description for line in planned.document.lines]


def test_a_plan_in_another_currency_is_not_of_this_invoice(ledger_path: Path) -> None:
    write(ledger_path, book())
    plans = parse_plans(PLANS.replace("currency: USD", "currency: EUR"))
    (found,) = Drafting(book_at(ledger_path), SELLER, plans_from(plans, book())).draft("acme", NOVEMBER)
    assert found.document.lines == ()


def test_amounts_in_a_foreign_currency_alone_make_no_empty_draft_of_the_sellers(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    (found,) = Drafting(book_at(ledger_path), paying(currency="JPY")).draft("acme", NOVEMBER)
    assert found.document.currency == "USD"


def test_what_an_amount_has_beyond_tokens_times_rates_is_a_row_of_its_own(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1", Usage(100, 0, 0)))
    (entry,) = drafted(ledger_path).usage
    usage = PeriodUsage((replace(entry, charged="0.0001"),))
    found = draft(Facts("acme", "USD", NOVEMBER, usage), SELLER)
    assert [(line.description, line.exact) for line in found.lines] == [
        ("Input tokens", "0.000125"),
        ("Discounts and tiers of the price", "-0.000025"),
    ]


def test_who_is_billed_already_gets_no_draft_when_the_period_is_closed(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    invoiced(ledger_path)
    assert Drafting(book_at(ledger_path), SELLER).close(NOVEMBER, ("zeta",), now_us=to_us(AFTER)) == []
    with pytest.raises(InvoiceInvalid, match="is closed"):
        drafted(ledger_path)


def test_what_is_billed_in_one_currency_is_still_drafted_in_the_other(ledger_path: Path) -> None:
    euros = Correction("c1", NOON, None, "acme", None, None, CorrectionKind.ADJUSTMENT, "old debt", "EUR", 0, 10**13)
    write(ledger_path, book(), *asked("1"), euros)
    office = Drafting(book_at(ledger_path), SELLER)
    dollars, _ = office.draft("acme", NOVEMBER)
    book_at(ledger_path).issue(dollars.id, SELLER)
    (left,) = office.draft("acme", NOVEMBER)
    assert left.document.currency == "EUR"
    (frozen,) = office.close(NOVEMBER, now_us=to_us(AFTER))
    assert (frozen.document.currency, frozen.frozen) == ("EUR", True)


def test_periods_are_closed_one_after_another(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"), *asked("2", at=NOON - timedelta(days=30)))
    office = Drafting(book_at(ledger_path), SELLER)
    for month, number in (("2026-10", 1), ("2026-11", 1)):
        assert len(office.close(period_in(month, "UTC"), now_us=to_us(AFTER))) == number
    with book_at(ledger_path).reading() as connection:
        closed = book_at(ledger_path).closings(connection, "seller")
    assert [one.start_text for one in closed] == ["2026-10-01 00:00 UTC", "2026-11-01 00:00 UTC"]


async def test_late_usage_of_a_period_that_cuts_quarters_of_an_hour_is_found_too(ledger_path: Path) -> None:
    odd = period_in("2026-11-01T00:01/2026-11-30T23:59", "UTC")
    async with open_ledger(ledger_path, book()) as ledger:
        await put(ledger, *asked("1"), opened("late"))
        invoiced(ledger_path, odd)
        assert not [line for line in drafted(ledger_path, DECEMBER).lines if line.kind is LineKind.LATE]
        await put(ledger, settled("late", Usage(7, 0, 0), at=IN_DECEMBER))
        (line,) = [line for line in drafted(ledger_path, DECEMBER).lines if line.kind is LineKind.LATE]
    assert line.quantity == 7


def test_an_invoice_that_rounds_to_0_is_credited_and_billed_to_another_buyer(ledger_path: Path) -> None:
    write(ledger_path, book(), *asked("1"))
    first = invoiced(ledger_path)
    assert first.document.total_minor == 0
    note = book_at(ledger_path).credit(first.document.number, SELLER, lambda one, notes: credit_all(one, notes, "who"))
    assert note.document.total_minor == 0
    again = invoiced(ledger_path, seller=paying(buyers={"acme": Party("acme", "Another")}))
    assert again.document.buyer.name == "Another"
    assert exact(again.document, LineKind.USAGE) == exact(first.document, LineKind.USAGE)
