"""`prefixgate lint --live` and `--from-ledger`: what traffic shows, asked of a running gateway or read in its ledger.

Both give the page of `/admin/lint`, which `--json` prints as it is; in SARIF a kind of call stands in place of a file.
"""

import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from billing import BillingError, PriceBook
from billing.counting import counted
from billing.reading import reading
from billing.verification.losses import by_reason, losses
from billing.when import to_us
from gateway.admin_client import Asked, ask
from gateway.commands.linting.forms import Forms, Shown, amount, print_as, sarif_log
from gateway.divergence.from_ledger import findings_in
from gateway.divergence.pages import LINT_PATH, finding_rows
from gateway.terminal import refused
from prefix_index.layout import Cause
from prefix_index.lint import Finding, Level, Place, Rule, Safety

Page = Mapping[str, Any]


def live_page(of: Asked) -> Page:
    """What a running gateway has seen since its start. Raises what `refused` makes where it cannot be asked."""
    return ask("GET", LINT_PATH, {}, of)


def ledger_page(place: str | Path, prices: Path | None, start: datetime, end: datetime) -> Page:
    """The same out of the rows of a period. Raises what `refused` makes where it, or the prices, cannot be read."""
    now = min(end, datetime.now(UTC))
    try:
        book = PriceBook.empty() if prices is None else PriceBook.load(prices)
        with reading(place) as connection:
            found = losses(connection, to_us(start), to_us(end))
    except BillingError as error:
        raise refused(error) from None
    reasons = by_reason(found)
    return {
        "from": start.isoformat(),
        "to": end.isoformat(),
        "findings": finding_rows(findings_in(found, now.timestamp()), book, now),
        "misses": [
            {"reason": reason, "requests": requests, "lost_tokens": tokens}
            for reason, (requests, tokens) in reasons.items()
        ],
    }


def show_page(page: Page, shown: Shown) -> int:
    """Print what traffic shows; returns the exit code, as `print_as` does."""
    findings = page["findings"]
    forms = Forms(
        data=lambda: page,
        sarif=lambda: sarif_log([_as_finding(row) for row in findings]),
        lines=lambda width: lines(page, shown.most, width),
    )
    return print_as(shown, forms, [_level(row) for row in findings])


def lines(page: Page, most: int, width: int) -> Iterator[str]:
    """What traffic shows, for people: dearest first."""
    findings = page["findings"]
    for row in findings[:most]:
        yield f"{row['tenant']}, {row['model']}, {row['route']}: {_place(row)}"
        for text in _said(row):
            yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    if len(findings) > most:
        yield f"and {len(findings) - most:,} more: --most, or --json has all"
    if findings:
        yield ""
    for miss in page.get("misses", ()):
        lost = f", {counted(miss['lost_tokens'], 'token')} lost" if miss["lost_tokens"] else ""
        yield f"missed, {miss['reason']}: {counted(miss['requests'], 'request')}{lost}"
    where = f"{page['from']} to {page['to']}" if "from" in page else f"{counted(page['requests'], 'request')} seen live"
    yield f"{counted(len(findings), 'finding')} in {where}"


def _said(row: Mapping[str, Any]) -> Iterator[str]:
    requests, lost = row["requests"], row["lost_tokens"]
    of = f"{requests:,} of {counted(row['of_requests'], 'request')} changed there"
    variants = f", {counted(row['variants'], 'system prompt')} in all" if row["variants"] else ""
    yield (
        f"{row['level']} {row['rule']}: {row['what']}; {of}{variants}, and lost {counted(lost, 'token')}, "
        f"{round(lost / requests):,} each."
    )
    money = row["money_a_day"]
    worth = "" if money is None else f", {amount(Fraction(money))} {row['currency']}"
    yield f"a day: {row['lost_tokens_a_day']:,} tokens{worth}; seen from {row['first_seen']} to {row['last_seen']}"
    yield f"fix ({row['safety']}): {row['fix']}"


def _place(row: Mapping[str, Any]) -> str:
    at = [row["place"]]
    if row["first_character"] is not None:
        at.append(f"character {_span(row['first_character'], row['last_character'])}")
    if row["first_token"] is not None:
        at.append(f"token {_span(row['first_token'], row['last_token'])}")
    return ", ".join(at)


def _span(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _as_finding(row: Mapping[str, Any]) -> Finding:
    level = _level(row)
    rule = Rule(row["rule"], row["what"], row["why"], row["fix"], Safety(row["safety"]), level)
    place = Place(f"{row['tenant']}/{row['model']}{row['route']}", offset=row["first_character"] or 0)
    return Finding(
        rule,
        place,
        subject=row["place"],
        cause=None if row["cause"] is None else Cause(row["cause"]),
        lost_tokens=round(row["lost_tokens"] / row["requests"]),
        level=level,
        calls=row["requests"],
        of=row["of_requests"],
        fingerprint="/".join((row["rule"], row["tenant"], row["model"], row["route"], row["place"])),
    )


def _level(row: Mapping[str, Any]) -> Level:
    return Level[row["level"].upper()]
