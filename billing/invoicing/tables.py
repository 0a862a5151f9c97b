"""Tables of invoices, in the database of the ledger.

invoice_drafts     one per seller, tenant, currency and period; replaced by the next, until its period is closed
invoices           issued documents, invoices and credit notes; never changed, never deleted
invoice_sequences  last number given, per seller and year
invoice_closings   periods whose books are closed
"""

from sqlalchemy import DDL, BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text, event

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

_SQLITE = (
    "CREATE TRIGGER {table}_no_{change} BEFORE {change} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'issued invoices and closed periods are immutable'); END"
)
_POSTGRES_FUNCTION = (
    "CREATE OR REPLACE FUNCTION invoices_are_immutable() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'issued invoices and closed periods are immutable'; END $$"
)
_POSTGRES = (
    "CREATE TRIGGER {table}_no_{change} BEFORE {change} ON {table} "
    "FOR EACH ROW EXECUTE FUNCTION invoices_are_immutable()"
)

for _table in (invoices, invoice_closings):
    event.listen(
        _table,
        "after_create",
        DDL(_POSTGRES_FUNCTION).execute_if(dialect="postgresql"),  # type: ignore[no-untyped-call]
    )
    for _change in ("update", "delete"):
        for _dialect, _text in (("sqlite", _SQLITE), ("postgresql", _POSTGRES)):
            event.listen(
                _table,
                "after_create",
                DDL(_text.format(table=_table.name, change=_change)).execute_if(  # type: ignore[no-untyped-call]
                    dialect=_dialect
                ),
            )
