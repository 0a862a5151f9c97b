"""A study for people, as a table, and for programs, as JSON.

What is unknown is `-` in the table and null in JSON.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from billing import Recorded
from gateway.sim.bill import Bill
from gateway.sim.ceiling import Ceiling
from gateway.sim.study import Line, mean_of

_UNKNOWN = "-"
_PICO = 10**12
_COLUMNS = (
    *("policy", "hit share", "TTFT mean", "p50", "p90", "p99", "output/s", "max/mean", "exp − rep"),
    *("answered", "failed"),
)
_BILLED = ("bill", "saved")
_CAPTION = (
    "TTFT, p50 ...: seconds to the first token · output/s: tokens · max/mean: busiest endpoint's computed tokens\n"
    "exp − rep: cached tokens as expected less as reported, of the prompts' tokens · - is unknown"
)
_CEILING = "unlimited cache"


@dataclass(frozen=True, slots=True)
class Summary:
    """All there is to say: `runs` are the lines of each policy, one a seed; `about` names load, fleet and arrivals;
    `notes` are sentences for people. `recorded` is what was measured when a ledger's requests were served."""

    about: Mapping[str, Any]
    runs: Mapping[str, Sequence[Line]]
    ceiling: Ceiling
    recorded: Recorded | None = None
    is_priced: bool = False
    """Whether there was a price book: then an amount that is unknown is one without a price."""
    notes: Sequence[str] = ()


def table_of(summary: Summary) -> Table:
    """A row a policy; above them the ceiling, and what was recorded if that is known. Bills where there are prices."""
    recorded = summary.recorded
    names = _COLUMNS + _BILLED * (summary.is_priced or (recorded is not None and recorded.currency is not None))
    table = Table(*(Column(name, no_wrap=True) for name in names), caption=_CAPTION, caption_justify="left")
    rows = [(_CEILING, percent(summary.ceiling.hit_share), *[_UNKNOWN] * (len(names) - 2))]
    if recorded is not None:
        rows.append(tuple(_recorded(recorded)))
    for row in rows:
        table.add_row(*row[: len(names)], style="dim")
    for policy, lines in summary.runs.items():
        row = (escape(policy), *_cells(lines), *_bill(mean_of(lines).bill, summary.is_priced))
        table.add_row(*row[: len(names)])
    return table


def as_json(summary: Summary) -> dict[str, Any]:
    """The same with every seed, seconds and pico-units as they are."""
    recorded = summary.recorded
    return {
        **summary.about,
        "ceiling_hit_share": summary.ceiling.hit_share,
        "recorded": None if recorded is None else asdict(recorded),
        "policies": {
            policy: {"mean": _object(mean_of(lines)), "seeds": [{"seed": line.seed, **_object(line)} for line in lines]}
            for policy, lines in summary.runs.items()
        },
        "notes": list(summary.notes),
    }


def percent(share: float | None) -> str:
    """`25.7 %`; `-` where it is unknown."""
    return _UNKNOWN if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def _cells(lines: Sequence[Line]) -> list[str]:
    line = mean_of(lines)
    figures = line.figures
    return [
        percent(figures.hit_share),
        *map(_seconds, (figures.ttft_mean_s, figures.ttft_p50_s, figures.ttft_p90_s, figures.ttft_p99_s)),
        _number(figures.output_tokens_per_s, 0),
        _number(figures.imbalance, 2),
        percent(figures.expected_minus_reported),
        _number(figures.answered, 0),
        _failed(line),
    ]


def _bill(bill: Bill, is_priced: bool) -> list[str]:
    if bill.currency is None:
        return ["unpriced" if is_priced else _UNKNOWN, _UNKNOWN]
    return [money(bill.currency, bill.charged_pico), money(bill.currency, bill.saved_pico)]


def _recorded(recorded: Recorded) -> list[str]:
    saved = Bill(recorded.currency, recorded.full_pico, recorded.charged_pico).saved_pico
    return [
        "as recorded",
        percent(recorded.hit_share),
        _UNKNOWN,
        *map(_seconds, (recorded.ttft_p50_s, recorded.ttft_p90_s, recorded.ttft_p99_s)),
        *(_UNKNOWN, _UNKNOWN, _UNKNOWN),
        _number(recorded.requests, 0),
        _UNKNOWN,
        money(recorded.currency, recorded.charged_pico),
        money(recorded.currency, saved),
    ]


def _failed(line: Line) -> str:
    figures = line.figures
    return _number(figures.failed, 0) + (f" ({figures.too_long:,.0f} too long)" if figures.too_long else "")


def money(currency: str | None, pico: int | None) -> str:
    """`USD 12.34`, with more digits where it is less than one; `-` where it is unknown."""
    if pico is None or currency is None:
        return _UNKNOWN
    return f"{currency} {pico / _PICO:,.{2 if abs(pico) >= _PICO else 6}f}"


def _seconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None or math.isnan(seconds) else f"{seconds:,.3f}"


def _number(number: float, places: int) -> str:
    return _UNKNOWN if math.isnan(number) else f"{number:,.{places}f}"


def _object(line: Line) -> dict[str, Any]:
    figures = {name: None if _is_nan(value) else value for name, value in asdict(line.figures).items()}
    bill = {**asdict(line.bill), "saved_pico": line.bill.saved_pico}
    return {**figures, "bill": bill, "took_s": round(line.took_s, 3)}


def _is_nan(value: float) -> bool:
    return math.isnan(value)
