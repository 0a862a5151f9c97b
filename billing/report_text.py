"""A report for eyes (table), for spreadsheets (CSV) and for programs (JSON). Amounts keep all their digits."""

import csv
import io
import json
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from billing.money import amount_text
from billing.report import COUNTED_FLAGS, STATES, Report, Tally

_UNKNOWN = "unknown"
_LEAST_PLACES = 2
_NOTES_CHARS = 14
"""The longest words of a note stay whole."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render_table(report: Report) -> Table:
    """A rich table: a row per tenant and model, a total per currency; notes name what is unknown."""
    table = Table(
        title=f"Usage from {report.start.isoformat()} to {report.end.isoformat()} (exclusive)",
        caption="Cached share: of the prompts for which the engine reported it. Written: into the cache, – where no "
        "engine reported any. Unknown amounts are not in the sums.",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("Tenant", "Model", "Currency"):
        table.add_column(heading, overflow="fold")
    for heading in ("Requests", "Prompt", "Cached", "Share", "Written", "Output", "At full price", "Charged", "Saved"):
        table.add_column(heading, justify="right", overflow="fold", no_wrap=True)  # names give way before numbers
    table.add_column("Notes", overflow="fold", min_width=_NOTES_CHARS)
    for line in report.lines:
        # As Text, since a name of a tenant's choosing may look like markup.
        table.add_row(Text(line.tenant_id), Text(line.model), line.currency or "–", *_cells(line.tally))
    table.add_section()
    for currency, total in report.totals.items():
        table.add_row("Total", "", currency or "–", *_cells(total), style="bold")
    return table


def render_csv(report: Report) -> str:
    """A line per tenant and model, no totals. Unknown amounts are empty. A name that a spreadsheet would run as a
    formula is given a leading apostrophe."""
    lines = [
        {"tenant": _no_formula(line.tenant_id), "model": _no_formula(line.model), "currency": line.currency}
        | dict(_fields(line.tally))
        for line in report.lines
    ]
    out = io.StringIO()
    columns = ["tenant", "model", "currency", *(name for name, _ in _fields(_NOTHING))]
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def render_json(report: Report) -> str:
    """Lines and totals; amounts are strings of decimals, null where unknown."""
    return json.dumps(
        {
            "from": report.start.isoformat(),
            "to": report.end.isoformat(),
            "lines": [
                {"tenant": line.tenant_id, "model": line.model, "currency": line.currency} | dict(_fields(line.tally))
                for line in report.lines
            ],
            "totals": [{"currency": currency} | dict(_fields(total)) for currency, total in report.totals.items()],
        },
        indent=2,
    )


_NOTHING = Tally(dict.fromkeys(STATES, 0), dict.fromkeys(COUNTED_FLAGS, 0))


def _fields(tally: Tally) -> Iterator[tuple[str, object]]:
    """The columns of a tally by name, as a file has them."""
    yield "requests", tally.requests
    for state in STATES:
        yield state, tally.states[state]
    yield "prompt_tokens", tally.prompt_tokens
    yield "cached_tokens", tally.cached_tokens
    yield "cache_write_tokens", tally.cache_write_tokens
    yield "output_tokens", tally.output_tokens
    yield "reported_prompt_tokens", tally.reported_prompt_tokens
    for flag in COUNTED_FLAGS:
        yield f"requests_{flag.value}", tally.flags[flag]
    for name, pico in (
        ("amount_full", tally.full_pico),
        ("amount_charged", tally.charged_pico),
        ("amount_saved", tally.saved_pico),
    ):
        yield name, None if pico is None else amount_text(pico)


def _cells(tally: Tally) -> list[str]:
    share = tally.hit_share
    return [
        f"{tally.requests:,}",
        f"{tally.prompt_tokens:,}",
        f"{tally.cached_tokens:,}",
        _UNKNOWN if share is None else f"{share:.1%}",
        f"{tally.cache_write_tokens:,}" if tally.cache_write_tokens else "–",
        f"{tally.output_tokens:,}",
        *(_money(pico) for pico in (tally.full_pico, tally.charged_pico, tally.saved_pico)),
        _notes(tally),
    ]


def _notes(tally: Tally) -> str:
    states = [(state, tally.states[state]) for state in STATES if state != "complete"]
    flags = [(flag.value, tally.flags[flag]) for flag in COUNTED_FLAGS]
    return ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in states + flags if count)


def _money(pico: int | None) -> str:
    """All significant digits, at least two places: `0.341642`, `12.00`."""
    if pico is None:
        return _UNKNOWN
    units, places = amount_text(pico).split(".")
    sign, digits = ("-", units[1:]) if units.startswith("-") else ("", units)
    return f"{sign}{int(digits):,}.{places.rstrip('0').ljust(_LEAST_PLACES, '0')}"


def _no_formula(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA_STARTS) else name
