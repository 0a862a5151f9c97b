"""The book of invoices: drafts that may change, documents that never do, and numbers without a gap.

    draft --issue--> number + document + SHA-256, in one transaction:
        1  the draft is taken away; whoever finds it gone has lost the race and is told so
        2  last number + 1
        3  no other invoice of the tenant covers a part of the period
        4  the document with its number is written

A transaction that fails or dies takes its number back, since the last number is a row like the others. Two never run
at once: in SQLite a transaction has the file to itself, in PostgreSQL it takes a lock that is there for this.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, RowMapping, create_engine, delete, insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.database import words
from billing.errors import LedgerUnavailable
from billing.invoicing.amounts import check_sums
from billing.invoicing.billed import replaces, share
from billing.invoicing.compose import dates_of, issues
from billing.invoicing.credit_notes import is_credited_whole
from billing.invoicing.documents import Document, DocumentKind, InvoiceInvalid, Period, digest_of, document_json
from billing.invoicing.documents import document_of as document_in
from billing.invoicing.seller_file import Seller
from billing.invoicing.tables import invoice_closings, invoice_drafts, invoice_metadata, invoices
from billing.postgres_address import postgres_url, shown
from billing.reading import connected, is_read_only, postgres_reader, upgrade_hint
from billing.reports.reading import begin_view, ended_within
from billing.when import from_us, to_us

_BUSY_TIMEOUT_S = 30.0
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7957695015158701409)"
"""Of PostgreSQL, until the end of the transaction; the number is any that nobody else uses."""

_NEXT = text(
    "INSERT INTO invoice_sequences (seller_id, year, last) VALUES (:seller_id, :year, 1) "
    "ON CONFLICT (seller_id, year) DO UPDATE SET last = invoice_sequences.last + 1 RETURNING last"
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A document without a number. Frozen: its period is closed, so nothing comes to it or leaves it."""

    id: str
    document: Document
    frozen: bool


@dataclass(frozen=True, slots=True)
class Issued:
    """A document as it was issued; `sha256` is of its text, and is checked whenever it is read."""

    document: Document
    sha256: str
    issued_at: datetime


class InvoiceBook:
    """Invoices in the database of a ledger: a SQLite file, or PostgreSQL by its URL."""

    def __init__(self, where: Path | str, *, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._name, self._engine = _engine(where)

    @contextmanager
    def reading(self, deadline_s: float | None = None) -> Iterator[Connection]:
        """A snapshot to read, of invoices and ledger; a gateway may write meanwhile.

        Raises `LedgerUnavailable`, and `ReportTooSlow` where a statement is still running after `deadline_s`.
        """
        with self._connected() as connection:
            is_set_up = set(inspect(connection).get_table_names()) >= set(invoice_metadata.tables)
        if not is_set_up:
            with self.writing():
                pass  # the tables are there
        with self._connected() as connection, ended_within(connection, deadline_s):
            begin_view(connection, deadline_s)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One short transaction, with the tables there. Raises `LedgerUnavailable`; then nothing was written."""
        with self._connected() as connection:
            is_sqlite = connection.dialect.name == "sqlite"
            connection.exec_driver_sql("BEGIN IMMEDIATE" if is_sqlite else _ONE_AT_A_TIME)
            invoice_metadata.create_all(connection)
            yield connection
            connection.commit()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with connected(self._engine) as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise LedgerUnavailable(f"{self._name}: {words(error)}{upgrade_hint(error)}") from error

    def save_draft(self, connection: Connection, document: Document, *, frozen: bool = False) -> Draft:
        """Keep a draft in the place of an earlier one of its seller, tenant, currency and period."""
        key = {
            "seller_id": document.seller.id,
            "tenant_id": document.tenant_id,
            "currency": document.currency,
            "start_us": document.period.start_us,
            "end_us": document.period.end_us,
        }
        stored = document_json(document)
        draft = Draft(f"draft-{digest_of(stored)[:12]}", document, frozen)
        connection.execute(delete(invoice_drafts).filter_by(**key))
        made = {"draft_id": draft.id, "frozen": frozen, "made_at_us": to_us(self._clock()), "document": stored}
        connection.execute(insert(invoice_drafts).values(key | made))
        if frozen:
            self._drop_outdated(connection, document, and_of_its_period=True)
        return draft

    def issue(self, draft_id: str, seller: Seller) -> Issued:
        """Give a draft its number and dates, for good. Raises `InvoiceInvalid` and `LedgerUnavailable`."""
        with self.writing() as connection:
            row = connection.execute(select(invoice_drafts).filter_by(draft_id=draft_id)).mappings().first()
            gone = connection.execute(delete(invoice_drafts).filter_by(draft_id=draft_id)).rowcount
            if row is None or gone != 1:
                raise InvoiceInvalid(
                    f"there is no draft {draft_id!r}: it was issued or drafted again since, or another document bills a"
                    " part of it: draft it again"
                )
            document = document_in(row["document"])
            self._may_be_issued(document, seller)
            issued = self._write(connection, document, seller, covers_period=True)
            self._drop_outdated(connection, document)
            return issued

    def must_be_issuable(self, draft_ids: Sequence[str], seller: Seller) -> None:
        """Raises `InvoiceInvalid` where one of several drafts cannot be issued, with what is wrong with each."""
        wrong = []
        with self.reading() as connection:
            found = {one.id: one.document for one in self.drafts(connection, seller.party.id)}
            for draft_id in draft_ids:
                if draft_id not in found:
                    wrong.append(f"there is no draft {draft_id!r}")
                    continue
                document = found[draft_id]
                try:
                    self._may_be_issued(document, seller)
                    self._must_be_free(connection, document)
                except InvoiceInvalid as error:
                    wrong.append(f"{draft_id} of {document.tenant_id}: {error}")
        if wrong:
            raise InvoiceInvalid("; ".join([*wrong, "nothing was issued"]))

    def credit(
        self, number: str, seller: Seller, note_of: Callable[[Document, Sequence[Document]], Document]
    ) -> Issued:
        """Issue a credit note; `note_of` makes it of the invoice and of its earlier notes."""
        with self.writing() as connection:
            invoice = self._get(connection, seller.party.id, number)
            earlier = [one.document for one in self._find(connection, seller.party.id, reference=number)]
            return self._write(connection, note_of(invoice.document, earlier), seller, covers_period=False)

    def close(self, connection: Connection, seller_id: str, period: Period) -> None:
        """Note that the books of a period are closed. Raises `InvoiceInvalid` where they are, or a part of it is."""
        for closed in self.closings(connection, seller_id):
            if closed.start_us < period.end_us and period.start_us < closed.end_us:
                raise InvoiceInvalid(f"{closed.start_text} to {closed.end_text} ({closed.timezone}) is closed already")
        connection.execute(
            insert(invoice_closings).values(
                seller_id=seller_id,
                start_us=period.start_us,
                end_us=period.end_us,
                closed_at_us=to_us(self._clock()),
                timezone=period.timezone,
            )
        )

    def closings(self, connection: Connection, seller_id: str) -> Sequence[Period]:
        """Closed periods, in their order; their texts are in UTC."""
        found = connection.execute(
            select(invoice_closings).filter_by(seller_id=seller_id).order_by(invoice_closings.c.start_us)
        ).mappings()
        return [
            Period(row["start_us"], row["end_us"], row["timezone"], *map(_utc_text, (row["start_us"], row["end_us"])))
            for row in found
        ]

    def drafts(self, connection: Connection, seller_id: str, tenant_id: str | None = None) -> Sequence[Draft]:
        """Drafts, by period and tenant."""
        c = invoice_drafts.c
        whose = {"seller_id": seller_id} | ({} if tenant_id is None else {"tenant_id": tenant_id})
        chosen = select(invoice_drafts).filter_by(**whose).order_by(c.start_us, c.tenant_id, c.currency)
        rows = connection.execute(chosen).mappings()
        return [Draft(row["draft_id"], document_in(row["document"]), bool(row["frozen"])) for row in rows]

    def issued(self, connection: Connection, seller_id: str, tenant_id: str | None = None) -> Sequence[Issued]:
        """Issued documents in the order of their numbers."""
        return self._find(connection, seller_id, **({} if tenant_id is None else {"tenant_id": tenant_id}))

    def names(self, connection: Connection, seller_id: str, tenant_id: str) -> frozenset[str]:
        """Numbers and frozen drafts of a tenant: what is billed has changed where they have."""
        whose = {"seller_id": seller_id, "tenant_id": tenant_id}
        numbers = connection.scalars(select(invoices.c.number).filter_by(**whose))
        drafts = connection.scalars(select(invoice_drafts.c.draft_id).filter_by(**whose, frozen=True))
        return frozenset([*numbers, *drafts])

    def live(self, connection: Connection, seller_id: str, tenant_id: str) -> Sequence[Document]:
        """Invoices of a tenant that are not credited whole: what they bill is billed."""
        found = [one.document for one in self.issued(connection, seller_id, tenant_id)]
        return [
            one
            for one in found
            if one.kind is DocumentKind.INVOICE
            and not is_credited_whole(one, [note for note in found if note.references == one.number])
        ]

    def get(self, seller_id: str, number: str) -> Issued:
        """An issued document. Raises `InvoiceInvalid` where there is none, or it is not what was issued."""
        with self.reading() as connection:
            return self._get(connection, seller_id, number)

    def _get(self, connection: Connection, seller_id: str, number: str) -> Issued:
        found = self._find(connection, seller_id, number=number)
        if not found:
            raise InvoiceInvalid(f"there is no invoice {number!r} of {seller_id}")
        return found[0]

    def _find(self, connection: Connection, seller_id: str, **chosen: str) -> list[Issued]:
        c = invoices.c
        found = select(invoices).filter_by(seller_id=seller_id, **chosen).order_by(c.year, c.sequence)
        return [_issued(row) for row in connection.execute(found).mappings()]

    def _may_be_issued(self, document: Document, seller: Seller) -> None:
        check_sums(document)
        found = issues(document, seller)
        if document.period.end_us > to_us(self._clock()):
            found = [*found, f"the period ends at {_end(document.period)}; it can be issued then"]
        if found:
            raise InvoiceInvalid("; ".join(found))

    def _write(self, connection: Connection, document: Document, seller: Seller, *, covers_period: bool) -> Issued:
        now = self._clock()
        issued_on, due_on, year = dates_of(now, seller)
        sequence = connection.execute(_NEXT, {"seller_id": seller.party.id, "year": year}).scalar_one()
        if covers_period:
            self._must_be_free(connection, document)
        is_invoice = document.kind is DocumentKind.INVOICE
        document = replace(
            document,
            number=seller.number(year, sequence),
            issued_on=issued_on,
            due_on=due_on if is_invoice else "",
        )
        stored = document_json(document)
        connection.execute(
            insert(invoices).values(
                seller_id=seller.party.id,
                year=year,
                sequence=sequence,
                number=document.number,
                kind=document.kind.value,
                tenant_id=document.tenant_id,
                currency=document.currency,
                start_us=document.period.start_us,
                end_us=document.period.end_us,
                issued_at_us=to_us(now),
                reference=document.references or None,
                total_minor=document.total_minor,
                document=stored,
                sha256=digest_of(stored),
            )
        )
        return Issued(document, digest_of(stored), now)

    def _drop_outdated(self, connection: Connection, document: Document, *, and_of_its_period: bool = False) -> None:
        """Take away drafts that are not frozen and bill something that `document` now does."""
        for one in self.drafts(connection, document.seller.id, document.tenant_id):
            is_same = and_of_its_period and replaces(one.document, document)
            if not one.frozen and (is_same or share(one.document, document)):
                connection.execute(delete(invoice_drafts).filter_by(draft_id=one.id))

    def _must_be_free(self, connection: Connection, document: Document) -> None:
        period = document.period
        for one in self.live(connection, document.seller.id, document.tenant_id):
            other = one.period
            if one.currency == document.currency and other.start_us < period.end_us and period.start_us < other.end_us:
                raise InvoiceInvalid(f"{one.number} bills {document.tenant_id} for a part of that period already")


def issued_to(connection: Connection, tenant_id: str) -> Sequence[Issued]:
    """What was issued to a tenant, newest first; of drafts it has nothing. Raises `InvoiceInvalid`."""
    if not inspect(connection).has_table(invoices.name):
        return []
    c = invoices.c
    found = select(invoices).filter_by(tenant_id=tenant_id).order_by(c.issued_at_us.desc(), c.year, c.sequence)
    return [_issued(row) for row in connection.execute(found).mappings()]


def _issued(row: RowMapping) -> Issued:
    if digest_of(row["document"]) != row["sha256"]:
        raise InvoiceInvalid(f"the invoice {row['number']} was changed in the database: its digest does not fit")
    return Issued(document_in(row["document"]), row["sha256"], from_us(row["issued_at_us"]))


def _end(period: Period) -> str:
    return f"{period.end_text} ({period.timezone})"


def _utc_text(us: int) -> str:
    return f"{from_us(us):%Y-%m-%d %H:%M} UTC"


def _engine(where: Path | str) -> tuple[str, Engine]:
    if "://" in str(where):
        url = postgres_url(str(where))
        return shown(url), postgres_reader(url, application_name="prefixgate invoice")
    path = Path(where).absolute()

    def opened() -> sqlite3.Connection:
        how = "mode=ro&immutable=1" if is_read_only(path) else "mode=rw"
        return sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=_BUSY_TIMEOUT_S)

    return str(path), create_engine(
        "sqlite+pysqlite://",
        creator=opened,
        poolclass=NullPool,
        hide_parameters=True,
        skip_autocommit_rollback=False,
    )
