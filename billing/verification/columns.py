"""The reason of a miss in SQL, without its number, so that rows can be grouped by it. The same in every database."""

from typing import Final

from sqlalchemy import ColumnElement, case, literal_column

from billing.schema import settlements
from billing.verification.verdicts import MissReason

_FIRST_MESSAGE: Final = "message 1"
LATER_MESSAGES: Final = "later messages"


def part_of(segment: str | None) -> str:
    """In what a prompt changed, for sums: later messages of a conversation are one; empty where it did not."""
    if segment is None or not segment.startswith("message "):
        return segment or ""
    return segment if segment == _FIRST_MESSAGE or segment.startswith(f"{_FIRST_MESSAGE} ") else LATER_MESSAGES


def miss_kind() -> ColumnElement[str | None]:
    """`prompt_changed` of a settlement that says `prompt_changed:4096`; NULL where nothing was missed.

    Written out, since to PostgreSQL two expressions with parameters are never the same, and none could be grouped by.
    """
    column = settlements.c.miss_reason
    return case(
        *(
            (column.like(literal_column(f"'{reason.value}%'")), literal_column(f"'{reason.value}'"))
            for reason in MissReason
        )
    )
