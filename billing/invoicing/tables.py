"""Tables of invoices, in the database of the ledger.

invoice_drafts     one per seller, tenant, currency and period; replaced by the next, until its period is closed
invoices           issued documents, invoices and credit notes; never changed, never deleted
invoice_sequences  last number given, per seller and year
invoice_closings   periods whose books are closed
"""

from sqlalchemy import BigInteger, Boolean, Column, Connection, Index, Integer, MetaData, String, Table, Text, event

from billing.immutable import make_immutable

invoice_metadata = MetaData()

invoice_drafts = Table(
    "invoice_drafts",
    invoice_metadata,
    Column("draft_id", String(64), primary_key=True),
    Column("seller_id", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("start_us", BigInteger, nullable=False),
    Column("end_us", BigInteger, nullable=False),
    Column("frozen", Boolean, nullable=False),
    Column("made_at_us", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Index("invoice_drafts_by_period", "seller_id", "tenant_id", "currency", "start_us", "end_us", unique=True),
)

invoices = Table(
    "invoices",
    invoice_metadata,
    Column("seller_id", Text, primary_key=True),
    Column("year", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("start_us", BigInteger, nullable=False),
    Column("end_us", BigInteger, nullable=False),
    Column("issued_at_us", BigInteger, nullable=False),
    Column("reference", Text),
    Column("total_minor", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Index("invoices_by_number", "seller_id", "number", unique=True),
    Index("invoices_by_tenant", "tenant_id", "issued_at_us"),
)

invoice_sequences = Table(
    "invoice_sequences",
    invoice_metadata,
    Column("seller_id", Text, primary_key=True),
    Column("year", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
)

invoice_closings = Table(
    "invoice_closings",
    invoice_metadata,
    Column("seller_id", Text, primary_key=True),
    Column("start_us", BigInteger, primary_key=True, autoincrement=False),
    Column("end_us", BigInteger, primary_key=True, autoincrement=False),
    Column("closed_at_us", BigInteger, nullable=False),
    Column("timezone", Text, nullable=False),
)


def _keep(table: Table, connection: Connection, **_: object) -> None:
    make_immutable(connection, table.name)


for _table in (invoices, invoice_closings):
    event.listen(_table, "after_create", _keep)
