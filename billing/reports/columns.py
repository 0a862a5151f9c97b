"""The columns of a report as a file has them: the same in CSV, JSON and Parquet, and amounts with all their digits."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from billing.money import amount_text
from billing.reports.adjustments import Adjustment
from billing.reports.report import Report
from billing.reports.tally import COUNTED_FLAGS, NOTHING, STATES, TOKEN_SUMS, Tally
from billing.types import Verdict

USAGE = "usage"
"""Kind of a line that is the sum of requests; others are kinds of adjustments."""

AMOUNTS = ("amount_list", "amount_full", "amount_charged", "amount_saved")
SHARES = ("hit_share", "coverage")


def columns_of(report: Report) -> tuple[str, ...]:
    """Names of the columns, in order."""
    return ("line", *report.query.by, "currency", *(name for name, _ in tally_fields(NOTHING)))


def kinds_of() -> dict[str, type]:
    """What the columns hold that are no texts."""
    numbers = {name: float if name in SHARES else int for name, _ in tally_fields(NOTHING)}
    return {**numbers, **dict.fromkeys(AMOUNTS, Decimal)}


def lines_of(report: Report) -> Iterator[dict[str, object]]:
    """The lines and then the adjustments, each with all columns; None where something is unknown, or is no question."""
    for line in report.lines:
        yield {"line": USAGE} | dict(line.group) | {"currency": line.currency} | dict(tally_fields(line.tally))
    for one in report.adjustments:
        yield adjustment_fields(one) | dict(_amounts_of(one))


def adjustment_fields(one: Adjustment) -> dict[str, object]:
    """What an adjustment is about; its requests are the rows of corrections."""
    about: Mapping[str, object] = {"line": one.kind} | dict(one.group) | {"currency": one.currency}
    empty: dict[str, object] = {name: None for name, _ in tally_fields(NOTHING)}
    return {**empty, **about}


def tally_fields(tally: Tally) -> Iterator[tuple[str, object]]:
    """The columns of a tally by name."""
    yield "requests", tally.requests
    for state in STATES:
        yield state, tally.states[state]
    for name in TOKEN_SUMS:
        yield name, getattr(tally, name)
    yield "hit_share", tally.hit_share
    yield "coverage", tally.coverage
    yield "verified_cached_tokens", tally.verified_cached_tokens
    yield "disputed_cached_tokens", tally.disputed_cached_tokens
    for verdict in Verdict:
        yield f"verdict_{verdict.value}", tally.verdicts.get(verdict, 0)
    for flag in COUNTED_FLAGS:
        yield f"requests_{flag.value}", tally.flags[flag]
    yield "unknown_amounts", tally.unknown_amounts
    amounts = (tally.list_pico, tally.full_pico, tally.charged_pico, tally.saved_pico)
    for name, pico in zip(AMOUNTS, amounts, strict=True):
        yield name, None if pico is None else amount_text(pico)


def _amounts_of(one: Adjustment) -> Iterator[tuple[str, str]]:
    yield "amount_full", amount_text(one.full_pico)
    yield "amount_charged", amount_text(one.charged_pico)
    yield "amount_saved", amount_text(one.full_pico - one.charged_pico)
