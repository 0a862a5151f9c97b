"""Jobs, end users, tags, list prices, verdicts, corrections, what engines' counters said, and sums by quarter."""

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, String, Text, inspect

from billing.immutable import make_immutable, make_mutable

revision = "0002"
down_revision = "0001"

_ADDED = {
    "requests": (Column("job_id", Text), Column("end_user", Text), Column("tags", Text)),
    "settlements": (
        Column("discounted_tokens", BigInteger),
        Column("list_units", BigInteger),
        Column("list_pico", BigInteger),
        Column("verdict", String(16)),
        Column("miss_reason", String(24)),
    ),
}

# Before, no tenant had a price of its own, and a cached rate held for every cached token. What was known stays.
_FILL = """
UPDATE settlements SET list_units = charged_units, list_pico = charged_pico, discounted_tokens = CASE
    WHEN price_id IS NULL THEN NULL
    WHEN state NOT IN ('complete', 'partial') THEN 0
    WHEN cached_input_pico IS NULL THEN 0
    ELSE cached_tokens END
"""


def upgrade() -> None:
    """Add, and fill with what follows from the rows. O(rows)."""
    for table, columns in _ADDED.items():
        for column in columns:
            op.add_column(table, column)
    if not inspect(op.get_bind()).has_table("chains"):  # a ledger from before there were chains
        op.create_table(
            "chains",
            Column("request_id", String(64), primary_key=True),
            Column("block_tokens", Integer, nullable=False),
            Column("hashes", LargeBinary, nullable=False),
            sqlite_with_rowid=False,
        )
    make_mutable(op.get_bind(), "settlements")
    op.execute(_FILL)
    make_immutable(op.get_bind(), "settlements")
    _create_corrections()
    _create_samples()
    _create_archives()
    _create_quarters()


def _create_corrections() -> None:
    op.create_table(
        "corrections",
        Column("correction_id", String(64), primary_key=True),
        Column("made_at_us", BigInteger, nullable=False),
        Column("request_id", String(64)),
        Column("tenant_id", Text, nullable=False),
        Column("key_id", Text),
        Column("model", Text),
        Column("kind", String(16), nullable=False),
        Column("reason", Text, nullable=False),
        Column("currency", String(3), nullable=False),
        Column("full_units", BigInteger, nullable=False),
        Column("full_pico", BigInteger, nullable=False),
        Column("charged_units", BigInteger, nullable=False),
        Column("charged_pico", BigInteger, nullable=False),
        Index("corrections_by_time", "made_at_us"),
        sqlite_with_rowid=False,
    )
    make_immutable(op.get_bind(), "corrections")


def _create_samples() -> None:
    op.create_table(
        "engine_samples",
        Column("endpoint_id", Text, primary_key=True),
        Column("sampled_at_us", BigInteger, primary_key=True, autoincrement=False),
        Column("owner_id", String(64), primary_key=True),
        Column("generation", BigInteger, nullable=False),
        Column("hit_tokens", BigInteger),
        Column("query_tokens", BigInteger),
        sqlite_with_rowid=False,
    )


def _create_archives() -> None:
    op.create_table(
        "archives",
        Column("month", String(7), primary_key=True),
        Column("start_us", BigInteger, nullable=False),
        Column("end_us", BigInteger, nullable=False),
        Column("file", Text, nullable=False),
        Column("sha256", String(64), nullable=False),
        Column("requests", BigInteger, nullable=False),
        Column("archived_at_us", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def _create_quarters() -> None:
    keys = ("tenant_id", "key_id", "model", "tags", "price_id")
    counts = ("requests", "prompt_tokens", "cached_tokens", "discounted_tokens", "cache_write_tokens", "output_tokens")
    reported = ("reasoning_tokens", "expected_cached_tokens", "reported_prompt_tokens", "reported_cached_tokens")
    amounts = [f"{name}_{part}" for name in ("full", "charged", "list") for part in ("units", "pico")]
    op.create_table(
        "usage_quarters",
        Column("quarter_us", BigInteger, primary_key=True, autoincrement=False),
        Column("owner_id", String(64), primary_key=True),
        Column("group_id", String(32), primary_key=True),
        *(Column(name, Text, nullable=False) for name in keys),
        Column("currency", String(3), nullable=False),
        Column("state", String(16), nullable=False),
        Column("flags", Text, nullable=False),
        Column("verdict", String(16), nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in (*counts, *reported, *amounts, "unknown_amounts")),
        Column("prefill_s", Float, nullable=False),
        Column("decode_s", Float, nullable=False),
        sqlite_with_rowid=False,
    )
