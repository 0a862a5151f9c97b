"""What a period cost, for people, for spreadsheets and for other systems; and the rows behind it.

    Query --report--> Report: Line, Line, ... totals, adjustments      --text, columns--> tables, CSV, JSON, Parquet
    Query --rows----> one row for each request and correction          --focus, events--> FOCUS, CloudEvents, Lago

query           what is asked                     zones         hours, days and months of a time zone
groups, sums    by what, from rows or roll-ups    tally         what is known of one group
adjustments     corrections and credits           reading       one view of the ledger, and a deadline
focus_invoice   an issued document in FOCUS
csv_text        CSV that a spreadsheet may open   parquet       the same columns, typed
tokens_by_kind  tokens as they were billed
"""

__all__: list[str] = []
