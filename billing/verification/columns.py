"""The reason of a miss in SQL, without its number, so that rows can be grouped by it. The same in every database."""

from sqlalchemy import ColumnElement, case, literal_column

from billing.schema import settlements
from billing.verification.verdicts import MissReason


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
