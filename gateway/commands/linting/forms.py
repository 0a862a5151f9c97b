"""Findings for people, as JSON and as SARIF; and with which exit code a run ends.

a Report of files, a page of /admin/lint --> Forms --print_as--> the one that is asked for, and the exit code
"""

import importlib.metadata
import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

import typer

from billing.counting import counted
from gateway.commands.linting.costs import Costs, total_a_day, total_lost
from prefix_index.lint import Finding, Level, Skipped, as_data, as_sarif, said

_WIDEST: Final = 100
_NARROWEST: Final = 40
_MOST_SKIPPED: Final = 10


class LintFormat(StrEnum):
    """How findings are printed."""

    TABLE = "table"
    JSON = "json"
    SARIF = "sarif"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found, what it did not read, and of how much."""

    findings: Sequence[Finding]
    skipped: Sequence[Skipped] = ()
    files: int = 0
    requests: int = 0
    known: int = 0
    """Findings that a baseline let pass."""
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class Shown:
    """How a report is printed, how many findings at most, and from which level on it fails (None: never)."""

    format: LintFormat = LintFormat.TABLE
    most: int = 100
    fail_on: Level | None = Level.WARNING


@dataclass(frozen=True, slots=True)
class Forms:
    """The same in each form; only the one that is asked for is made. `lines` is told the width in columns."""

    data: Callable[[], object]
    sarif: Callable[[], object]
    lines: Callable[[int], Iterable[str]]


def print_as(shown: Shown, forms: Forms, levels: Iterable[Level]) -> int:
    """Print it; returns the exit code: 1 where a finding is at or above `fail_on`, else 0."""
    match shown.format:
        case LintFormat.JSON:
            typer.echo(json.dumps(forms.data(), indent=1, ensure_ascii=False))
        case LintFormat.SARIF:
            typer.echo(json.dumps(forms.sarif(), indent=1, ensure_ascii=False))
        case LintFormat.TABLE:
            width = max(_NARROWEST, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))
            for line in forms.lines(width):
                typer.echo(line)
    return int(shown.fail_on is not None and any(level >= shown.fail_on for level in levels))


def show(report: Report, shown: Shown) -> int:
    """Print a report of files; returns the exit code, as `print_as` does."""
    forms = Forms(
        data=lambda: as_json(report),
        sarif=lambda: sarif_log(report.findings, report.skipped),
        lines=lambda width: lines(report, shown.most, width),
    )
    return print_as(shown, forms, [one.level for one in report.findings])


def sarif_log(findings: Sequence[Finding], skipped: Sequence[Skipped] = ()) -> dict[str, object]:
    """A run of this version, as SARIF."""
    return as_sarif(findings, skipped, importlib.metadata.version("prefixgate"))


def as_json(report: Report) -> dict[str, object]:
    """A report for programs; amounts are text, and what is unknown is null."""
    costs = report.costs
    rows = []
    for one in report.findings:
        tokens = costs.tokens_a_day(one)
        money = costs.money_a_day(tokens)
        rows.append(as_data(one) | {"tokens_per_day": tokens, "cost_per_day": None if money is None else amount(money)})
    tokens = total_a_day(report.findings, costs)
    money = costs.money_a_day(tokens)
    return {
        "findings": rows,
        "skipped": [{"path": one.path, "why": one.why} for one in report.skipped],
        "files": report.files,
        "requests": report.requests,
        "in_baseline": report.known,
        "lost_tokens_per_call": total_lost(report.findings),
        "tokens_per_day": tokens,
        "cost_per_day": None if money is None else amount(money),
        "currency": costs.currency or None,
        "cost_is_at_most": costs.at_most,
        "repeat": float(costs.repeat),
    }


def lines(report: Report, most: int, width: int) -> Iterator[str]:
    """A report for people, at most `width` columns wide but for paths, which stay whole."""
    worst = sorted(report.findings, key=lambda one: (-one.level, -(one.lost_tokens or 0), one.place))
    for one in worst[:most]:
        yield from _finding(one, report.costs, width)
    if len(worst) > most:
        yield f"and {len(worst) - most:,} more: --most, or --json has all"
    if worst:
        yield ""
        yield from _rules(worst, width)
        yield ""
    yield from _skipped(report.skipped, width)
    yield from _sum(report, width)


def _finding(one: Finding, costs: Costs, width: int) -> Iterator[str]:
    yield f"{one.place.text()}"
    yield from _wrapped(f"{one.level.name.lower()} {one.rule.id}: {said(one)}.", width, "  ")
    tokens = costs.tokens_a_day(one)
    if tokens is not None:
        yield from _wrapped(_day(tokens, costs), width, "  ")
    yield from _wrapped(f"fix ({one.rule.safety.value}): {one.rule.fix}", width, "  ")
    if one.shown:
        yield from _wrapped(f"text: {one.shown!r}", width, "  ")


def _day(tokens: int, costs: Costs) -> str:
    money = costs.money_a_day(tokens)
    said_money = "" if money is None else f", {'at most ' if costs.at_most else ''}{amount(money)} {costs.currency}"
    return f"a day: {tokens:,} tokens{said_money.rstrip()}"


def _rules(findings: Sequence[Finding], width: int) -> Iterator[str]:
    counts = Counter(one.rule.id for one in findings)
    lost = Counter[str]()
    for one in findings:
        lost[one.rule.id] += one.lost_tokens or 0
    name_width = max(len(name) for name in counts)
    yield f"{'rule':<{name_width}}  {'findings':>8}  {'tokens a call':>13}"[:width]
    for name, count in counts.most_common():
        yield f"{name:<{name_width}}  {count:>8,}  {lost[name] or '-':>13}"[:width]


def _skipped(skipped: Sequence[Skipped], width: int) -> Iterator[str]:
    for one in skipped[:_MOST_SKIPPED]:
        yield from _wrapped(f"not read: {one.path}: {one.why}", width, "")
    if len(skipped) > _MOST_SKIPPED:
        yield f"and {len(skipped) - _MOST_SKIPPED:,} more were not read: --json names all"


def _sum(report: Report, width: int) -> Iterator[str]:
    read = counted(report.files, "file")
    if report.requests:
        read += f" with {counted(report.requests, 'request')}"
    words = [f"{counted(len(report.findings), 'finding')} in {read}"]
    if report.known:
        words.append(f"{report.known:,} in the baseline")
    if report.skipped:
        words.append(f"{len(report.skipped):,} not read")
    if report.findings:
        words.append(f"{total_lost(report.findings):,} tokens a call, each prompt counted once")
    yield from _wrapped("; ".join(words), width, "")
    tokens = total_a_day(report.findings, report.costs)
    if tokens is not None:
        yield from _wrapped(_day(tokens, report.costs), width, "")


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def amount(money: Fraction) -> str:
    """An amount with so many digits that it says something: `12.40`, `0.0031`."""
    for digits in (2, 4, 6):
        text = f"{float(money):.{digits}f}"
        if money >= 1 or float(text):
            return text
    return "0.00" if money == 0 else f"{float(money):.2e}"
