"""By which name a model was asked for and what chose it; and of answers, who else worked on them."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add; of requests before nothing is known. O(1): neither database writes a row anew for an empty column."""
    op.add_column("requests", Column("model_asked", Text))
    op.add_column("requests", Column("route_rule", String(64)))
    op.add_column("settlements", Column("continuations", Integer))
    op.add_column("settlements", Column("prefill_endpoint_id", Text))
    op.add_column("settlements", Column("prefill_cached_tokens", BigInteger))
    op.add_column("settlements", Column("decode_cached_tokens", BigInteger))
    for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
        op.add_column("attempts", Column(name, BigInteger))
