"""What a fleet or an address does under load, and why: measured from a ledger, from a running gateway, or by a load.

    ledger   billing.reports.timings ──> past ─────────┐
    address  offering ─> probing, sweep ─> windows ────┴─> levels ─> knee, verdict ─> Study ─> text, charts
               └ shapes, wording     └ driving ─> asking ─> streams

`asking`, `driving`, `probing`, `sweep` and `offering` ask, `pictures` writes files; the others are pure.
"""

__all__: list[str] = []
