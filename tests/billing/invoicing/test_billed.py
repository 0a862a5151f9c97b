"""What a request costs is on one invoice: through halves of a month, credits, late usage, and drafts made too early."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from billing import Usage
from billing.archive import archive_month
from billing.invoicing import (
    Document,
    Draft,
    Drafting,
    InvoiceInvalid,
    LineKind,
    Period,
    Planned,
    credit_all,
    period_in,
)
from billing.invoicing.billed import billed_within, joined
from billing.invoicing.minor_units import pico_of
from billing.types import Correction, CorrectionKind
from billing.when import to_us
from tests.billing.invoicing.office import DECEMBER, NOVEMBER, SELLER, Written, book_at, write
from tests.billing.samples import NOON, book, opened, settled

SUMMER = datetime(2027, 7, 5, tzinfo=UTC)
OCTOBER = period_in("2026-10", "UTC")
JANUARY = period_in("2027-01", "UTC")
FIRST_HALF = period_in("2026-11-01/2026-11-15", "UTC")
SECOND_HALF = period_in("2026-11-15/2026-12-01", "UTC")
IN_OCTOBER, IN_DECEMBER = NOON - timedelta(days=30), NOON + timedelta(days=30)
EARLY, LATE = NOON - timedelta(days=10), NOON + timedelta(days=10)


def bit(number: int, at: datetime = NOON) -> tuple[Written, Written]:
    """A request that costs 2 to the power of `number` dollars, so that a sum tells which were billed, and how often."""
    usage = Usage(800_000 * 2**number, 0, 0)
    return opened(str(number), at=at), settled(str(number), usage, at=at + timedelta(seconds=2))


def bit_corrected(number: int, at: datetime = NOON) -> Correction:
    return Correction(
        f"c{number}", at, None, "acme", None, None, CorrectionKind.ADJUSTMENT, "x", "USD", 0, 2**number * 10**12
    )


def office(path: Path) -> Drafting:
    return Drafting(book_at(path, SUMMER), SELLER)


def issued(path: Path, *drafts: Draft) -> None:
    for draft in drafts:
        book_at(path, SUMMER).issue(draft.id, SELLER)


def credited(path: Path, number: str) -> None:
    def note(document: Document, earlier: Sequence[Document]) -> Document:
        return credit_all(document, earlier, "wrong")

    book_at(path, SUMMER).credit(number, SELLER, note)


def close(path: Path, text: str) -> Sequence[Draft]:
    return office(path).close(period_in(text, "UTC"), now_us=to_us(SUMMER))


def documents(path: Path) -> list[Document]:
    with book_at(path).reading() as connection:
        return [one.document for one in book_at(path).issued(connection, "seller")]


def billed(path: Path) -> int:
    """Dollars on all invoices, less those given back."""
    lines = [line for one in documents(path) for line in one.lines if line.kind is not LineKind.ROUNDING]
    return sum(pico_of(line.exact) for line in lines) // 10**12


def test_half_a_month_that_was_invoiced_is_not_billed_again_as_late_after_the_month_is_closed(
    ledger_path: Path,
) -> None:
    write(ledger_path, book(), *bit(0, EARLY), *bit(1, LATE), *bit(2, IN_DECEMBER))
    issued(ledger_path, *office(ledger_path).draft("acme", FIRST_HALF))
    assert close(ledger_path, "2026-11") == []
    issued(ledger_path, *office(ledger_path).draft("acme", DECEMBER))
    assert billed(ledger_path) == 0b111


def test_what_was_credited_is_billed_anew_where_it_was_and_not_also_as_late_in_the_next_month(
    ledger_path: Path,
) -> None:
    write(ledger_path, book(), *bit(0), *bit(1, IN_DECEMBER))
    issued(ledger_path, *close(ledger_path, "2026-11"))
    credited(ledger_path, "2027-000001")
    issued(ledger_path, *office(ledger_path).draft("acme", DECEMBER))
    assert billed(ledger_path) == 0b10
    issued(ledger_path, *office(ledger_path).draft("acme", NOVEMBER))
    assert billed(ledger_path) == 0b11


def test_a_month_billed_anew_leaves_out_what_the_next_one_has_billed_of_it_as_late(ledger_path: Path) -> None:
    write(ledger_path, book(), *bit(0, EARLY), *bit(1, IN_DECEMBER))
    issued(ledger_path, *office(ledger_path).draft("acme", NOVEMBER))
    write(ledger_path, book(), *bit(2, LATE))
    issued(ledger_path, *office(ledger_path).draft("acme", DECEMBER))
    credited(ledger_path, "2027-000001")
    with pytest.raises(InvoiceInvalid, match="2027-000002 has late usage of a period that is only in part"):
        office(ledger_path).draft("acme", SECOND_HALF)
    issued(ledger_path, *office(ledger_path).draft("acme", NOVEMBER))
    assert billed(ledger_path) == 0b111


def test_late_usage_that_is_in_two_drafts_is_billed_by_the_one_that_is_issued(ledger_path: Path) -> None:
    write(ledger_path, book(), *bit(0, IN_OCTOBER))
    issued(ledger_path, *office(ledger_path).draft("acme", OCTOBER))
    write(ledger_path, book(), *bit(1, IN_OCTOBER), bit_corrected(2, IN_OCTOBER), *bit(3), *bit(4, IN_DECEMBER))
    november, december = (office(ledger_path).draft("acme", one)[0] for one in (NOVEMBER, DECEMBER))
    issued(ledger_path, november)
    with pytest.raises(InvoiceInvalid, match="another document bills a part of it: draft it again"):
        issued(ledger_path, december)
    issued(ledger_path, *office(ledger_path).draft("acme", DECEMBER))
    assert billed(ledger_path) == 0b11111


@pytest.mark.parametrize("early", [DECEMBER, FIRST_HALF])
def test_a_draft_from_before_the_close_does_not_bill_what_the_close_has_frozen(
    ledger_path: Path, early: Period
) -> None:
    write(ledger_path, book(), *bit(0, IN_OCTOBER))
    issued(ledger_path, *office(ledger_path).draft("acme", OCTOBER))
    write(ledger_path, book(), *bit(1, IN_OCTOBER), *bit(2, EARLY), *bit(3, IN_DECEMBER))
    (before,) = office(ledger_path).draft("acme", early)
    frozen = close(ledger_path, "2026-11")
    with pytest.raises(InvoiceInvalid, match="draft it again"):
        issued(ledger_path, before)
    issued(ledger_path, *frozen, *office(ledger_path).draft("acme", DECEMBER))
    assert billed(ledger_path) == 0b1111


def test_an_invoice_issued_while_another_is_drafted_makes_that_one_begin_again(ledger_path: Path) -> None:
    write(ledger_path, book(), *bit(0, IN_OCTOBER), *bit(1))
    (october,) = office(ledger_path).draft("acme", OCTOBER)

    def meanwhile(_facts: object) -> Planned:
        issued(ledger_path, october)
        return Planned()

    with pytest.raises(InvoiceInvalid, match="acme was invoiced or credited while this was drafted: try again"):
        Drafting(book_at(ledger_path, SUMMER), SELLER, meanwhile).draft("acme", NOVEMBER)


def test_a_month_that_was_archived_before_it_was_invoiced_is_refused_and_not_billed_as_nothing(
    ledger_path: Path,
) -> None:
    write(ledger_path, book(), *bit(0, IN_OCTOBER), *bit(1))
    archive = archive_month(ledger_path, "2026-10", ledger_path.parent, lambda: SUMMER)
    for step in (partial(office(ledger_path).draft, "acme", OCTOBER), partial(close, ledger_path, "2026-10")):
        with pytest.raises(InvoiceInvalid, match="archived before they were invoiced"):
            step()
    issued(ledger_path, *office(ledger_path).draft("acme", NOVEMBER))
    assert billed(ledger_path) == 0b10
    assert archive.requests == 1


def test_a_month_elsewhere_is_billed_though_a_month_of_utc_that_ends_in_it_was_archived(ledger_path: Path) -> None:
    november = period_in("2026-11", "Asia/Tokyo")
    write(ledger_path, book(), *bit(0, IN_OCTOBER), *bit(1))
    archive_month(ledger_path, "2026-10", ledger_path.parent, lambda: SUMMER)
    issued(ledger_path, *office(ledger_path).draft("acme", november))
    assert billed(ledger_path) == 0b10
    path = ledger_path.with_name("shared.db")
    write(path, book(), *bit(0, datetime(2026, 10, 31, 20, tzinfo=UTC)), *bit(1))
    archive_month(path, "2026-10", ledger_path.parent / "other", lambda: SUMMER)
    with pytest.raises(InvoiceInvalid, match="archived before they were invoiced"):
        office(path).draft("acme", november)


def test_late_usage_that_was_archived_before_it_was_billed_is_told(ledger_path: Path) -> None:
    write(ledger_path, book(), *bit(0, IN_OCTOBER))
    issued(ledger_path, *close(ledger_path, "2026-10"))
    write(ledger_path, book(), *bit(1))
    archive_month(ledger_path, "2026-10", ledger_path.parent, lambda: SUMMER)
    (whole,) = office(ledger_path).draft("acme", NOVEMBER)
    assert not [note for note in whole.document.notes if "archived" in note]
    path = ledger_path.with_name("late.db")
    write(path, book(), *bit(0, IN_OCTOBER))
    issued(path, *close(path, "2026-10"))
    write(path, book(), *bit(1, IN_OCTOBER), *bit(2))
    archive_month(path, "2026-10", ledger_path.parent / "other", lambda: SUMMER)
    (told,) = office(path).draft("acme", NOVEMBER)
    assert [note for note in told.document.notes if "archived" in note]


def test_spans_within_each_other_are_one_and_neighbours_are_two() -> None:
    assert joined([(5, 9), (0, 5), (1, 3), (8, 12)]) == [(0, 5), (5, 12)]
    assert billed_within([], (0, 5)) == []


PARTS = ("2026-10-01/2026-10-15", "2026-10-15/2026-11-01", "2026-11-01/2026-11-10", "2026-11-10/2026-12-01")
MONTHS = ("2026-10", "2026-11", "2026-12")


def quietly(step: Callable[[], object]) -> None:
    """A step that the book may refuse."""
    try:
        step()
    except InvoiceInvalid:
        return


@pytest.mark.parametrize("seed", [5, 8, 17, 48, 55])
def test_whatever_is_drafted_issued_credited_and_closed_in_any_order_all_is_billed_once(
    ledger_path: Path, seed: int
) -> None:
    dice, drafts, count = random.Random(seed), list[Draft](), 0

    def used() -> None:
        nonlocal count
        at = datetime.fromisoformat(f"{dice.choice(MONTHS)}-{dice.randint(1, 28):02d}T12:00+00:00")
        write(ledger_path, book(), *([bit_corrected(count, at)] if dice.random() < 0.25 else bit(count, at)))
        count += 1

    def credit_one() -> None:
        numbers = [one.number for one in documents(ledger_path) if not one.references]
        credited(ledger_path, dice.choice(numbers or ["none"]))

    steps: list[Callable[[], object]] = [
        used,
        lambda: drafts.extend(office(ledger_path).draft("acme", period_in(dice.choice(MONTHS + PARTS), "UTC"))),
        lambda: issued(ledger_path, *([dice.choice(drafts)] if drafts else [])),
        credit_one,
        lambda: drafts.extend(close(ledger_path, dice.choice(MONTHS))),
    ]
    for step in (used, used, used, *dice.choices(steps, weights=[1, 2, 2, 1, 1], k=10)):
        quietly(step)
    for text in MONTHS:
        quietly(partial(close, ledger_path, text))
    for text in (*MONTHS, *PARTS):
        quietly(partial(office(ledger_path).draft, "acme", period_in(text, "UTC")))
    for _ in range(2):
        with book_at(ledger_path).reading() as connection:
            left = book_at(ledger_path).drafts(connection, "seller")
        for draft in left:
            quietly(partial(issued, ledger_path, draft))
        quietly(partial(office(ledger_path).draft, "acme", JANUARY))
    assert billed(ledger_path) == 2**count - 1
