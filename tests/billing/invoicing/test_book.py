"""Numbers have no gap, whoever issues at the same time and whoever dies; what is issued does not change."""

import multiprocessing
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing import LedgerUnavailable
from billing.invoicing import (
    Document,
    DocumentKind,
    Drafting,
    InvoiceInvalid,
    Issued,
    credit_all,
    credit_part,
    issued_to,
    period_in,
)
from billing.reading import reading
from tests.billing.conftest import Execute, Where
from tests.billing.invoicing.office import AFTER, NOVEMBER, SELLER, Written, book_at, drafted, invoiced, paying, write
from tests.billing.samples import book, opened, settled


@pytest.fixture
def empty(where: Where) -> Where:
    """A ledger without requests, in each database: its invoices are over 0, and as good as others for numbers."""
    write(where, book())
    return where


def day(number: int) -> Document:
    return replace(TEMPLATE, period=period_in(f"2026-11-{number:02d}", "UTC"))


TEMPLATE = Document(
    kind=DocumentKind.INVOICE,
    tenant_id="acme",
    currency="USD",
    seller=SELLER.party,
    buyer=SELLER.buyer("acme"),
    period=NOVEMBER,
    lines=(),
    taxes=(),
    total_minor=0,
)


def drafts(where: Path | str, days: range) -> list[str]:
    found = book_at(where)
    with found.writing() as connection:
        return [found.save_draft(connection, day(number)).id for number in days]


def numbers(where: Path | str, seller_id: str = "seller") -> list[str]:
    found = book_at(where)
    with found.reading() as connection:
        return [one.document.number for one in found.issued(connection, seller_id)]


def expected(count: int, year: int = 2026) -> list[str]:
    return [f"{year}-{number:06d}" for number in range(1, count + 1)]


def issue_some(where: Path | str, draft_ids: list[str]) -> int:
    """In a process of its own: issue all of them, some twice; how many were issued here."""
    done = 0
    for draft_id in draft_ids:
        try:
            book_at(where).issue(draft_id, SELLER)
            done += 1
        except InvoiceInvalid:
            continue
    return done


def test_numbers_have_no_gap_when_processes_race_for_the_same_drafts(empty: Where) -> None:
    ids = drafts(empty, range(1, 25))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        orders = [(empty, ids), (empty, ids[::-1]), (empty, ids[12:] + ids[:12])]
        counts = pool.starmap(issue_some, orders)
    assert sum(counts) == 24
    assert numbers(empty) == expected(24)


def test_a_transaction_that_fails_gives_its_number_back(empty: Where) -> None:
    first, second = drafts(empty, range(1, 3))
    overlapping = drafts(empty, range(1, 2))
    assert overlapping == [first]
    book_at(empty).issue(first, SELLER)
    (again,) = drafts(empty, range(1, 2))
    with pytest.raises(InvoiceInvalid, match="already"):
        book_at(empty).issue(again, SELLER)
    assert book_at(empty).issue(second, SELLER).document.number == "2026-000002"


DIES = textwrap.dedent(
    """
    import os, sys
    from sqlalchemy import event
    from sqlalchemy.engine import Engine
    from tests.billing.invoicing.office import SELLER, book_at
    def dies(connection, cursor, statement, *rest):
        if statement.startswith(sys.argv[3]):
            os.kill(os.getpid(), 9)
    event.listen(Engine, "after_cursor_execute", dies)
    book_at(sys.argv[1]).issue(sys.argv[2], SELLER)
    """
)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM invoice_drafts", "INSERT INTO invoice_sequences", "INSERT INTO invoices"]
)
def test_an_issuer_that_is_killed_after_any_of_its_writes_leaves_no_gap(empty: Where, statement: str) -> None:
    first, second = drafts(empty, range(1, 3))
    book_at(empty).issue(first, SELLER)
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(empty), second, statement],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert died.returncode == -9, died.stderr
    assert numbers(empty) == expected(1)
    book_at(empty).issue(second, SELLER)
    assert numbers(empty) == expected(2)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=15))
def test_numbers_have_no_gap_whatever_is_issued_and_credited(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    write(path, book(), *(record for n in range(1, 21) for record in on_day(n)))
    issued: dict[int, Issued] = {}
    for number, is_credit in steps:
        try:
            if is_credit and number in issued:
                book_at(path).credit(issued[number].document.number, SELLER, note_over_all)
            else:
                issued[number] = invoiced(path, period_in(f"2026-11-{number:02d}", "UTC"))
        except InvoiceInvalid:
            continue
    found = numbers(path)
    assert found == expected(len(found))


def on_day(number: int) -> tuple[Written, ...]:
    at = datetime(2026, 11, number, 12, tzinfo=UTC)
    return opened(str(number), at=at), settled(str(number), at=at)


def note_over_all(document: Document, earlier: Sequence[Document]) -> Document:
    return credit_all(document, earlier, "wrong")


def test_each_year_and_each_seller_counts_from_one(empty: Where) -> None:
    first, second, third = drafts(empty, range(1, 4))
    book_at(empty).issue(first, SELLER)
    tokyo = paying(timezone="Asia/Tokyo")
    eve = datetime(2026, 12, 31, 16, tzinfo=UTC)  # the new year has begun in Tokyo
    assert book_at(empty, eve).issue(second, tokyo).document.number == "2027-000001"
    assert book_at(empty, eve).issue(third, SELLER).document.number == "2026-000002"
    other = paying(party=replace(SELLER.party, id="other"))
    assert invoiced(empty, NOVEMBER, seller=other).document.number == "2026-000001"
    assert numbers(empty, "other") == expected(1)


def test_dates_are_those_of_the_sellers_clocks(empty: Where) -> None:
    (draft,) = drafts(empty, range(1, 2))
    issued = book_at(empty, datetime(2026, 12, 31, 16, tzinfo=UTC)).issue(draft, paying(timezone="Asia/Tokyo"))
    assert (issued.document.issued_on, issued.document.due_on) == ("2027-01-01", "2027-01-31")


@pytest.mark.parametrize("change", ["UPDATE invoices SET total_minor = 1", "DELETE FROM invoices"])
def test_the_database_refuses_to_change_what_is_issued(empty: Where, execute: Execute, change: str) -> None:
    invoiced(empty)
    with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match="immutable"):
        execute(change)


def test_a_document_that_was_changed_past_the_database_is_not_printed(empty: Where, execute: Execute) -> None:
    issued = invoiced(empty)
    of_table = " ON invoices" if isinstance(empty, str) else ""
    execute(f"DROP TRIGGER invoices_no_update{of_table}")
    execute("UPDATE invoices SET document = replace(document, 'acme', 'evil')")
    with pytest.raises(InvoiceInvalid, match="was changed in the database"):
        book_at(empty).get("seller", issued.document.number)


def test_credit_notes_that_race_do_not_give_back_more_than_was_charged(ledger_path: Path) -> None:
    write(ledger_path, book(), opened(), settled())
    big = invoiced(ledger_path, seller=paying(currency="USD"))
    number, net = big.document.number, big.document.net_minor

    def one(_: int) -> bool:
        try:
            book_at(ledger_path).credit(
                number, SELLER, lambda document, earlier: credit_part(document, earlier, max(1, net // 2), "half")
            )
        except InvoiceInvalid:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(one, range(6)))
    with book_at(ledger_path).reading() as connection:
        found = [one.document for one in book_at(ledger_path).issued(connection, "seller")]
    assert len(found) == 1 + sum(done)
    assert 0 <= sum(one.total_minor for one in found) < big.document.total_minor or net == 0


def test_who_has_no_entry_among_the_buyers_gets_a_draft_and_no_invoice(ledger_path: Path) -> None:
    write(ledger_path, book(), opened(tenant="stranger"), settled())
    found = drafted(ledger_path, tenant="stranger")
    assert found.buyer.name == "stranger"
    with pytest.raises(InvoiceInvalid, match="`buyers` has no entry for 'stranger'"):
        invoiced(ledger_path, tenant="stranger")


def test_who_used_nothing_and_is_no_buyer_gets_no_draft(empty: Where) -> None:
    with pytest.raises(InvoiceInvalid, match="'stranger' used nothing in that period, and is not among `buyers`"):
        drafted(empty, tenant="stranger")


def test_a_period_that_has_not_ended_is_drafted_and_not_issued(empty: Where) -> None:
    with pytest.raises(InvoiceInvalid, match="the period ends at 2027-01-01 00:00"):
        invoiced(empty, period_in("2026-12", "UTC"))


def test_a_draft_is_replaced_by_the_next_of_its_period(ledger_path: Path) -> None:
    write(ledger_path, book(), opened(), settled())
    office = Drafting(book_at(ledger_path), SELLER)
    (old,) = office.draft("acme", NOVEMBER)
    write(ledger_path, book(), opened("2"), settled("2"))
    (new,) = office.draft("acme", NOVEMBER)
    with pytest.raises(InvoiceInvalid, match="drafted again since"):
        book_at(ledger_path).issue(old.id, SELLER)
    assert book_at(ledger_path).issue(new.id, SELLER).document.number == "2026-000001"


def test_a_ledger_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=r"gone\.db"), book_at(tmp_path / "gone.db").reading():
        pass


def test_what_fails_while_reading_is_the_ledgers_failure(empty: Where) -> None:
    with pytest.raises(LedgerUnavailable), book_at(empty).reading() as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")


def test_a_draft_of_a_seller_who_changed_since_is_drafted_again_first(empty: Where) -> None:
    (draft,) = drafts(empty, range(1, 2))
    moved = paying(party=replace(SELLER.party, address=("Osaka",)))
    with pytest.raises(InvoiceInvalid, match="the seller was changed since"):
        book_at(empty).issue(draft, moved)


def test_a_number_that_was_never_given_is_not_found(empty: Where) -> None:
    with pytest.raises(InvoiceInvalid, match="there is no invoice '2026-000009' of seller"):
        book_at(empty).credit("2026-000009", SELLER, note_over_all)


def test_who_never_had_an_invoice_has_none(empty: Where) -> None:
    with reading(empty) as connection:
        assert issued_to(connection, "acme") == []
    issued = invoiced(empty)
    with reading(empty) as connection:
        assert issued_to(connection, "acme") == [issued]
        assert issued_to(connection, "zeta") == []


def test_the_time_of_issue_is_kept(empty: Where) -> None:
    issued = invoiced(empty)
    assert book_at(empty).get("seller", issued.document.number).issued_at == AFTER


def test_who_only_looks_at_invoices_writes_nothing(ledger_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(ledger_path, book(), opened(), settled())
    issued = invoiced(ledger_path)
    before = ledger_path.read_bytes()
    assert book_at(ledger_path).get("seller", issued.document.number) == issued
    assert ledger_path.read_bytes() == before
    monkeypatch.setattr("os.access", lambda *_: False)  # as on a medium that cannot be written
    assert book_at(ledger_path).get("seller", issued.document.number) == issued
    with pytest.raises(LedgerUnavailable, match="readonly"):
        invoiced(ledger_path, period_in("2026-10", "UTC"))
