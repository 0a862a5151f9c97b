"""A report for eyes (table), for spreadsheets (CSV) and for programs (JSON). Amounts keep all their digits."""

import json

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from billing.money import amount_text
from billing.reports.columns import columns_of, lines_of, tally_fields
from billing.reports.csv_text import csv_text
from billing.reports.report import Report
from billing.reports.tally import COUNTED_FLAGS, STATES, Tally
from billing.types import Verdict

_UNKNOWN = "unknown"
_NONE = "–"
_LEAST_PLACES = 2
_DOUBTED = (Verdict.ENGINE_HIGHER, Verdict.ENGINE_LOWER)
_NOTES_CHARS = 14
"""The longest words of a note stay whole."""


def render_table(report: Report) -> Table:
    """A rich table: a row per group, a total per currency, then the adjustments; notes name what is unknown."""
    table = Table(
        title=f"Usage from {report.start.isoformat()} to {report.end.isoformat()} (exclusive)",
        caption="Cached share: of the prompts for which the engine reported it. Written: into the cache, – where no "
        "engine reported any. Unknown amounts are not in the sums.",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    by = report.query.by
    for name in by:
        table.add_column(name.capitalize(), overflow="fold")
    table.add_column("Currency", overflow="fold")
    for heading in ("Requests", "Prompt", "Cached", "Share", "Written", "Output", "At full price", "Charged", "Saved"):
        table.add_column(heading, justify="right", overflow="fold", no_wrap=True)  # names give way before numbers
    table.add_column("Notes", overflow="fold", min_width=_NOTES_CHARS)
    for line in report.lines:
        # As Text, since a name of a tenant's choosing may look like markup.
        table.add_row(*(Text(line.group[name]) for name in by), line.currency or _NONE, *_cells(line.tally))
    table.add_section()
    for currency, total in report.totals.items():
        table.add_row(*_named("Total", len(by)), currency or _NONE, *_cells(total), style="bold")
    _add_adjustments(table, report)
    return table


def render_csv(report: Report) -> str:
    """A line per group, then the adjustments; no totals. Unknown amounts are empty. A name that a spreadsheet would
    run as a formula is given a leading apostrophe."""
    return csv_text(columns_of(report), lines_of(report))


def render_json(report: Report) -> str:
    """Lines, totals and adjustments; amounts are strings of decimals, null where unknown."""
    return json.dumps(json_of(report), indent=2)


def json_of(report: Report) -> dict[str, object]:
    """What `render_json` writes."""
    found: dict[str, object] = {
        "from": report.start.isoformat(),
        "to": report.end.isoformat(),
        "time_zone": report.query.zone.key,
        "by": list(report.query.by),
        "lines": list(lines_of(report)),
        "totals": [{"currency": currency} | dict(tally_fields(total)) for currency, total in report.totals.items()],
        "payable": {currency: amount_text(pico) for currency, pico in report.payable_pico().items()},
    }
    if report.misses is not None:
        found["misses"] = [
            {
                "reason": one.reason,
                "part": one.part,
                "requests": one.requests,
                "computed_tokens": one.computed_tokens,
                "lost_tokens": one.lost_tokens,
            }
            for one in report.misses
        ]
    return found


def render_misses(report: Report) -> Table | None:
    """Misses by reason; None where they were not asked for."""
    if report.misses is None:
        return None
    table = Table("Reason of a miss", "Changed in", title="Misses", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("Requests", justify="right")
    table.add_column("Prompt tokens computed", justify="right")
    table.add_column("of them lost", justify="right")
    for one in report.misses:
        figures = (one.requests, one.computed_tokens, one.lost_tokens)
        table.add_row(one.reason, one.part or "", *(f"{figure:,}" for figure in figures))
    return table


def _add_adjustments(table: Table, report: Report) -> None:
    by = report.query.by
    if not report.adjustments:
        return
    table.add_section()
    for one in report.adjustments:
        amounts = (_money(pico) for pico in (one.full_pico, one.charged_pico, one.full_pico - one.charged_pico))
        names = [Text(one.group[name]) for name in by]
        note = f"{one.count:,} {one.kind}{'s' if one.count > 1 else ''}"
        table.add_row(*names, one.currency, *[_NONE] * 6, *amounts, note)
    for currency, pico in report.payable_pico().items():
        cells = [_NONE] * 6 + ["", _money(pico), ""]
        table.add_row(*_named("Payable", len(by)), currency, *cells, "after adjustments", style="bold")


def _named(word: str, names: int) -> list[str]:
    return [word, *[""] * (names - 1)] if names else []


def _cells(tally: Tally) -> list[str]:
    share = tally.hit_share
    return [
        f"{tally.requests:,}",
        f"{tally.prompt_tokens:,}",
        f"{tally.cached_tokens:,}",
        _UNKNOWN if share is None else f"{share:.1%}",
        f"{tally.cache_write_tokens:,}" if tally.cache_write_tokens else _NONE,
        f"{tally.output_tokens:,}",
        *(_money(pico) for pico in (tally.full_pico, tally.charged_pico, tally.saved_pico)),
        _notes(tally),
    ]


def _notes(tally: Tally) -> str:
    states = [(state, tally.states[state]) for state in STATES if state != "complete"]
    flags = [(flag.value, tally.flags[flag]) for flag in COUNTED_FLAGS]
    verdicts = [(one.value, tally.verdicts.get(one, 0)) for one in _DOUBTED]
    return ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in states + flags + verdicts if count)


def _money(pico: int | None) -> str:
    """All significant digits, at least two places: `0.341642`, `12.00`."""
    if pico is None:
        return _UNKNOWN
    units, places = amount_text(pico).split(".")
    sign, digits = ("-", units[1:]) if units.startswith("-") else ("", units)
    return f"{sign}{int(digits):,}.{places.rstrip('0').ljust(_LEAST_PLACES, '0')}"
