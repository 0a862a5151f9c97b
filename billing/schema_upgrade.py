"""Tables of an older ledger, made those of this one in the transaction that opens it."""

from sqlalchemy import Connection

_ADDED = (
    ("requests", ("job_id TEXT", "end_user TEXT", "tags TEXT")),
    ("settlements", ("discounted_tokens BIGINT", "list_units BIGINT", "list_pico BIGINT")),
    ("settlements", ("verdict VARCHAR(16)", "miss_reason VARCHAR(24)")),
)

# In version 1 no tenant had a price of its own, and a cached rate held for every cached token. What version 1 knew is
# not touched, so its trigger steps aside for this one statement.
_FILL = """
UPDATE settlements SET list_units = charged_units, list_pico = charged_pico, discounted_tokens = CASE
    WHEN price_id IS NULL THEN NULL
    WHEN state NOT IN ('complete', 'partial') THEN 0
    WHEN cached_input_pico IS NULL THEN 0
    ELSE cached_tokens END
"""


def upgrade_1_to_2(connection: Connection) -> None:
    """Add the columns of version 2 and fill them with what follows from version 1. O(rows)."""
    for table, columns in _ADDED:
        for column in columns:
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column}")
    find = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = 'settlements_no_update'"
    trigger = connection.exec_driver_sql(find).scalar_one()
    connection.exec_driver_sql("DROP TRIGGER settlements_no_update")
    connection.exec_driver_sql(_FILL)
    connection.exec_driver_sql(trigger)
