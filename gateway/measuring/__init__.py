"""What a fleet or an address does under load, and why: measured from a ledger, from a running gateway, or by a load.

    ledger   billing.reports.timings ──> past ─────────┐
    address  shapes, wording ─> sweep ─> windows ──────┴─> levels ─> knee, verdict ─> Study ─> text, plots

`levels`, `knee`, `spread`, `verdict`, `study` and `past` are pure; `asking`, `driving`, `probing` and `sweep` ask.
"""

__all__: list[str] = []
