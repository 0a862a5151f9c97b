"""What was done to a prompt on its way, and which part of it kept it from a cache, beside each settlement."""

from alembic import op
from sqlalchemy import Column, Integer, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add; of requests before nothing is known. O(1): neither database writes a row anew for an empty column."""
    for column in (
        Column("layout_fixes", String(64)),
        Column("changed_segment", String(32)),
        Column("lost_tokens", Integer),
    ):
        op.add_column("settlements", column)
