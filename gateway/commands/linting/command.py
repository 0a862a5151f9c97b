"""`prefixgate lint`: what in sources and captured requests breaks prefixes, and what that costs."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final

import typer

from billing import BillingError, PriceBook
from billing.money import pico_per_token
from billing.reports.zones import asked_period
from billing.when import zone_named
from gateway.admin_client import Gateway, TokenFile
from gateway.admin_client import asked as asked_gateway
from gateway.command_line.progress import progress
from gateway.commands.linting.costs import Costs, measured_repeat
from gateway.commands.linting.files import Walk, read_all
from gateway.commands.linting.forms import LintFormat, Report, Shown, show
from gateway.commands.linting.live import ledger_page, live_page, show_page
from gateway.commands.linting.model import Clocked, dates_of
from gateway.config import ledger_place
from gateway.terminal import ConfigFile, From, LedgerPlace, Month, Quiet, TimeZone, To, read_config, refused
from prefix_index.lint import (
    Asked,
    Finding,
    Level,
    LintSettingsInvalid,
    Read,
    Request,
    Settings,
    baseline_of,
    known_rules,
    read_baseline,
    read_settings,
    with_fingerprints,
    without_known,
)

SETTINGS_FILE: Final = Path(".prefixgate-lint.yaml")


class FailOn(StrEnum):
    """From which level on a finding fails the run."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


def lint(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files and folders; captured requests too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known, for programs.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code hosts.")] = False,
    fail_on: Annotated[FailOn, typer.Option(help="Exit 1 where a finding is at or above this level.")] = FailOn.WARNING,
    most: Annotated[int, typer.Option(min=1, help="Findings printed for people, the dearest first.")] = 100,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block: engines keep whole ones.")] = 16,
    minimum_tokens: Annotated[
        int, typer.Option(min=0, help="The least that a provider keeps, as 1024; 0: a block.")
    ] = 0,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a model: its tokenizer counts, its chat template is tried out.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="Chat template to try out instead of the model's own.")
    ] = None,
    calls_per_day: Annotated[int | None, typer.Option(min=1, help="Calls a day, to tell what a day costs.")] = None,
    price_per_mtok: Annotated[
        str | None, typer.Option(metavar="INPUT[:CACHED]", help="Price of a million tokens, and of cached ones.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Or a price book, YAML; needs --price-of.")] = None,
    price_of: Annotated[str | None, typer.Option(help="The model in the price book.")] = None,
    repeat: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of calls that repeat; default: measured, or 1.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A rule to leave out; repeat for each.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A path or pattern to leave out; repeat for each.")] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="YAML with `ignore`, `exclude`; default: .prefixgate-lint.yaml.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Let pass what this file says was there before.")] = None,
    write_baseline: Annotated[Path | None, typer.Option(help="Write what is found now to this file; exit 0.")] = None,
    show_text: Annotated[bool, typer.Option(help="Show text of captured requests where they part.")] = False,
    time_limit_s: Annotated[float, typer.Option(min=0, help="Read no further file after so long.")] = 600.0,
    quiet: Quiet = False,
    live: Annotated[bool, typer.Option("--live", help="Instead of files: what a running gateway sees.")] = False,
    from_ledger: Annotated[
        bool, typer.Option("--from-ledger", help="Instead of files: what the ledger says of a period.")
    ] = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    ledger: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """What in prompts breaks prefixes, what it costs, and what to do: in sources, templates and captured requests.

    Exit 0 where nothing is found, 1 where something is at or above --fail-on, 2 where nothing could be read.
    """
    form = LintFormat.SARIF if sarif else LintFormat.JSON if as_json else LintFormat.TABLE
    shown = Shown(form, most, None if fail_on is FailOn.NEVER else Level[fail_on.name])
    if live:
        raise typer.Exit(show_page(live_page(asked_gateway(gateway, token_file, config)), shown))
    if from_ledger:
        start, end = _period(from_, to, month, time_zone)
        settled = read_config(config, {})
        page = ledger_page(ledger or ledger_place(settled), prices or settled.prices_file, start, end)
        raise typer.Exit(show_page(page, shown))
    try:
        settings = _settings(settings_file, ignore or (), exclude or ())
        known = None if baseline is None else read_baseline(_text(baseline), str(baseline))
    except LintSettingsInvalid as error:
        raise refused(error) from None
    clocked = None if model is None else Clocked(model, chat_template)
    count = None if clocked is None else clocked.count_tokens
    asked = Asked(block_size, minimum_tokens, count, os.urandom(16), show_text)
    walk = Walk(_existing(paths or ()), settings, time.monotonic, time.monotonic() + time_limit_s)
    pricing = _pricing(calls_per_day, price_per_mtok, prices, price_of)
    with progress("files read", quiet=quiet or form is not LintFormat.TABLE) as told:
        reads = []
        for read in read_all(walk, asked):
            reads.append(read)
            told(len(reads), None)
    findings = [one for read in reads for one in read.findings]
    if clocked is not None and model is not None:
        findings += with_fingerprints(dates_of(clocked, model, _requests(reads), asked))
    findings = [one for one in findings if one.rule.id not in settings.ignore]
    if write_baseline is not None:
        write_baseline.write_text(baseline_of(findings), encoding="utf-8")
        typer.echo(f"{len(findings):,} findings written to {write_baseline}")
        return
    costs = replace(pricing, repeat=_repeat(repeat, _requests(reads)))
    code = show(_report(reads, findings, known, costs), shown)
    raise typer.Exit(code or (2 if _nothing_read(reads) else 0))


def _nothing_read(reads: Sequence[Read]) -> bool:
    """Whether of all that was named or found not one file could be read."""
    return bool(reads) and all(one.skipped and not one.findings and not one.requests for one in reads)


def _report(reads: Sequence[Read], findings: Sequence[Finding], known: Counter[str] | None, costs: Costs) -> Report:
    fresh = findings if known is None else without_known(findings, known)
    skipped = [one for read in reads for one in read.skipped]
    requests = sum(len(read.requests) for read in reads)
    return Report(fresh, skipped, len(reads), requests, len(findings) - len(fresh), costs)


def _period(from_: str | None, to: str | None, month: str | None, time_zone: str) -> tuple[datetime, datetime]:
    try:
        return asked_period(from_, to, month, zone_named(time_zone))
    except BillingError as error:
        raise refused(error) from None


def _existing(paths: Sequence[Path]) -> Sequence[Path]:
    if not paths:
        raise refused("nothing to read: give files or folders, --live or --from-ledger")
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise refused(f"there is no {missing[0]}")
    return paths


def _requests(reads: Sequence[Read]) -> list[Request]:
    return [one for read in reads for one in read.requests]


def _repeat(given: float | None, requests: Sequence[Request]) -> Fraction:
    """The share of calls that repeat a fixed head: as given, else as captured, else all."""
    if given is not None:
        return Fraction(str(given))
    heads = {(one.group, one.model, tuple(unit.text for unit in one.head)) for one in requests}
    return measured_repeat(len(requests), len(heads))


def _settings(path: Path | None, ignore: Sequence[str], exclude: Sequence[str]) -> Settings:
    found = Settings()
    if path is not None or SETTINGS_FILE.is_file():
        place = path or SETTINGS_FILE
        found = read_settings(_text(place), str(place))
    return Settings(found.ignore | known_rules(ignore, "--ignore"), (*found.exclude, *exclude))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refused(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no UTF-8'}") from None


def _pricing(calls: int | None, per_mtok: str | None, prices: Path | None, model: str | None) -> Costs:
    if per_mtok is not None:
        return _from_text(calls, per_mtok)
    if prices is None:
        return Costs(calls)
    if model is None:
        raise refused("--prices needs --price-of MODEL")
    try:
        book = PriceBook.load(prices)
    except BillingError as error:
        raise refused(error) from None
    price = book.price_at(model, datetime.now(UTC))
    if price is None:
        raise refused(f"{prices} has no price of {model} today")
    cached = price.cached_input_pico
    saved = price.input_pico - (cached or 0)
    return Costs(calls, saved_pico=saved, currency=price.currency, at_most=cached is None)


def _from_text(calls: int | None, per_mtok: str) -> Costs:
    rate, _, cached = per_mtok.partition(":")
    try:
        full = pico_per_token(Fraction(rate))
        less = pico_per_token(Fraction(cached)) if cached else 0
    except (ValueError, ZeroDivisionError) as error:
        raise refused(f"--price-per-mtok {per_mtok!r}: {error}") from None
    return Costs(calls, saved_pico=full - less, at_most=not cached)
