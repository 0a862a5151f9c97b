"""The tables of the ledger: four that only ever grow, sums of them, which process owns them, and one to forget.

    requests  1 --- 0..1  settlements      a request without a settlement is in flight, or its owner died
        1 ------- 0..n    attempts         upstream calls, also those that nobody pays for
                     0..n corrections      signed changes of a bill, of one request or none
    usage_quarters                         sums of the first two by quarter of an hour, kept with them
    engine_samples                         what the engines' own counters said, to hold the settlements against
    archives                               months whose rows were moved into a file of their own
    owners                                 one row per gateway process; ended_at_us is set by an orderly end
    requests  1 --- 0..1  chains           what prompts shared, where that is kept: no bill rests on it

Rows of the first four are never changed and never deleted: triggers refuse it. Those of `chains` may be deleted; they
have a table of their own so that a report need not step over them. An amount is whole units and a pico
remainder (`money`). A settlement holds the rates by which it was priced, so that it can be computed again from itself.
Times are microseconds since 1970 in UTC, as integers: they sort, and no driver gives them a zone of its own.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
)

from billing.immutable import make_immutable

REVISION = "0004"
"""Of the tables, the newest of `migrations`; kept in the ledger, so that an older gateway writes into no newer one.

A table that an older gateway can leave alone is no new revision: it is made where it is missing.
"""

metadata = MetaData()

requests = Table(
    "requests",
    metadata,
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
    Column("job_id", Text),
    Column("end_user", Text),
    Column("tags", Text),
    Column("model_asked", Text),
    Column("route_rule", String(64)),
    Index("requests_by_time", "opened_at_us"),
    sqlite_with_rowid=False,
)

settlements = Table(
    "settlements",
    metadata,
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
    Column("discounted_tokens", BigInteger),
    Column("list_units", BigInteger),
    Column("list_pico", BigInteger),
    Column("verdict", String(16)),
    Column("miss_reason", String(24)),
    Column("layout_fixes", String(64)),
    Column("changed_segment", String(32)),
    Column("lost_tokens", Integer),
    Column("continuations", Integer),
    Column("prefill_endpoint_id", Text),
    Column("prefill_cached_tokens", BigInteger),
    Column("decode_cached_tokens", BigInteger),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    metadata,
    Column("request_id", String(64), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("endpoint_id", Text, nullable=False),
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("status", Integer),
    Column("prompt_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    sqlite_with_rowid=False,
)

corrections = Table(
    "corrections",
    metadata,
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

OPENED = "opened"
"""State under which `usage_quarters` counts openings; those in flight are the openings without a settlement."""

usage_quarters = Table(
    "usage_quarters",
    metadata,
    Column("quarter_us", BigInteger, primary_key=True, autoincrement=False),
    Column("owner_id", String(64), primary_key=True),
    Column("group_id", String(32), primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("price_id", Text, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("state", String(16), nullable=False),
    Column("flags", Text, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("discounted_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("expected_cached_tokens", BigInteger, nullable=False),
    Column("reported_prompt_tokens", BigInteger, nullable=False),
    Column("reported_cached_tokens", BigInteger, nullable=False),
    Column("full_units", BigInteger, nullable=False),
    Column("full_pico", BigInteger, nullable=False),
    Column("charged_units", BigInteger, nullable=False),
    Column("charged_pico", BigInteger, nullable=False),
    Column("list_units", BigInteger, nullable=False),
    Column("list_pico", BigInteger, nullable=False),
    Column("unknown_amounts", BigInteger, nullable=False),
    Column("prefill_s", Float, nullable=False),
    Column("decode_s", Float, nullable=False),
    sqlite_with_rowid=False,
)

engine_samples = Table(
    "engine_samples",
    metadata,
    Column("endpoint_id", Text, primary_key=True),
    Column("sampled_at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("owner_id", String(64), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("hit_tokens", BigInteger),
    Column("query_tokens", BigInteger),
    sqlite_with_rowid=False,
)

archives = Table(
    "archives",
    metadata,
    Column("month", String(7), primary_key=True),
    Column("start_us", BigInteger, nullable=False),
    Column("end_us", BigInteger, nullable=False),
    Column("file", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("archived_at_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

owners = Table(
    "owners",
    metadata,
    Column("owner_id", String(64), primary_key=True),
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
)

chains = Table(
    "chains",
    metadata,
    Column("request_id", String(64), primary_key=True),
    Column("block_tokens", Integer, nullable=False),
    Column("hashes", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)


def _immutable(table: Table, connection: Connection, **_: object) -> None:
    make_immutable(connection, table.name)


for _table in (requests, settlements, attempts, corrections):
    event.listen(_table, "after_create", _immutable)
