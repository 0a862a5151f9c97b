"""A preview is what would be drafted, beside what is billed already; it changes nothing."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing import ReportTooSlow, Usage
from billing.invoicing import Document, Drafting
from billing.reports import reading
from tests.billing.invoicing.office import (
    DECEMBER,
    NOVEMBER,
    SELLER,
    book_at,
    drafted,
    invoiced,
    paying,
    write,
)
from tests.billing.samples import book, opened, price, settled


def previewed(where: Path, tenant: str = "acme") -> list[Document]:
    return list(Drafting(book_at(where), SELLER).preview(tenant, NOVEMBER))


def written(where: Path, *tokens: int) -> None:
    records = [
        record
        for number, count in enumerate(tokens)
        for record in (opened(f"r{number}"), settled(f"r{number}", Usage(count, count // 2, 10)))
    ]
    write(where, book(price()), *records)


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=4))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_preview_is_the_draft(tmp_path: Path, tokens: list[int]) -> None:
    where = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    written(where, *tokens)
    assert previewed(where) == [drafted(where)]


def test_a_preview_keeps_nothing(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    written(where, 1000)
    previewed(where)
    with book_at(where).reading() as connection:
        assert book_at(where).drafts(connection, SELLER.party.id) == []
        assert book_at(where).issued(connection, SELLER.party.id) == []


def test_what_is_invoiced_is_shown_as_it_was_issued(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    written(where, 1000)
    issued = invoiced(where, seller=paying())
    (document,) = Drafting(book_at(where), paying()).preview("acme", NOVEMBER)
    assert document == issued.document
    assert document.number


def test_of_a_closed_period_its_drafts_are_shown(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    written(where, 1000)
    drafting = Drafting(book_at(where), SELLER)
    (frozen,) = drafting.close(NOVEMBER, now_us=DECEMBER.end_us)
    assert previewed(where) == [frozen.document]


def test_who_used_nothing_has_no_preview(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    written(where, 1000)
    assert previewed(where, "zeta") == []


def test_a_month_of_very_many_rows_does_not_keep_its_reader_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_STEPS_BETWEEN_LOOKS", 100)
    where = tmp_path / "ledger.db"
    written(where, *range(1, 200))
    with pytest.raises(ReportTooSlow):
        Drafting(book_at(where), SELLER).preview("acme", NOVEMBER, 0.0)
