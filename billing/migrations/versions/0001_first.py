"""The first tables: requests, settlements, attempts, owners, chains."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, String, Text

from billing.immutable import make_immutable

revision = "0001"
down_revision = None


def upgrade() -> None:
    """As gateways before Alembic made them."""
    op.create_table(
        "requests",
        Column("request_id", String(64), primary_key=True),
        Column("opened_at_us", BigInteger, nullable=False),
        Column("owner_id", String(64), nullable=False),
        Column("tenant_id", Text, nullable=False),
        Column("key_id", Text, nullable=False),
        Column("share_group", Text, nullable=False),
        Column("model", Text, nullable=False),
        Column("route", Text, nullable=False),
        Column("stream", Boolean, nullable=False),
        Column("prompt_tokens_expected", BigInteger),
        Index("requests_by_time", "opened_at_us"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "settlements",
        Column("request_id", String(64), primary_key=True),
        Column("settled_at_us", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("http_status", Integer),
        Column("endpoint_id", Text),
        Column("prompt_tokens", BigInteger),
        Column("cached_tokens", BigInteger),
        Column("cache_write_tokens", BigInteger),
        Column("output_tokens", BigInteger),
        Column("reasoning_tokens", BigInteger),
        Column("expected_cached_tokens", BigInteger),
        Column("flags", Text, nullable=False),
        Column("convention", String(16)),
        Column("usage_json", Text),
        Column("ttft_s", Float),
        Column("duration_s", Float),
        Column("prefill_s", Float),
        Column("decode_s", Float),
        Column("currency", String(3)),
        Column("price_id", Text),
        Column("input_pico", BigInteger),
        Column("cached_input_pico", BigInteger),
        Column("cache_write_pico", BigInteger),
        Column("output_pico", BigInteger),
        Column("full_units", BigInteger),
        Column("full_pico", BigInteger),
        Column("charged_units", BigInteger),
        Column("charged_pico", BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        Column("request_id", String(64), primary_key=True),
        Column("ordinal", Integer, primary_key=True, autoincrement=False),
        Column("endpoint_id", Text, nullable=False),
        Column("started_at_us", BigInteger, nullable=False),
        Column("ended_at_us", BigInteger, nullable=False),
        Column("outcome", Text, nullable=False),
        Column("status", Integer),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "owners",
        Column("owner_id", String(64), primary_key=True),
        Column("started_at_us", BigInteger, nullable=False),
        Column("ended_at_us", BigInteger),
    )
    op.create_table(
        "chains",
        Column("request_id", String(64), primary_key=True),
        Column("block_tokens", Integer, nullable=False),
        Column("hashes", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    for table in ("requests", "settlements", "attempts"):
        make_immutable(op.get_bind(), table)
