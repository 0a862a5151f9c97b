"""`prefixgate prices`: a price file looked at before it is used, and what a tenant pays by it. No gateway need run.

Exit code 2 where a file cannot be used.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.markup import escape
from rich.table import Table

from billing import BillingError, PriceBook, parse_when
from billing.prices.advice import advice
from billing.prices.plans_file import load_plans
from billing.prices.pricing import CachedRule, Price, Quote
from billing.prices.public_apis import ApiPrice, api_prices
from billing.prices.view import per_mtok, quote_view
from gateway.command_line.answers import print_json
from gateway.command_line.completing import models, tenants
from gateway.command_line.refusals import remark
from gateway.currency_advice import Money, currency_advice
from gateway.keys_file import KeysFileInvalid, read_keys_file
from gateway.terminal import AsJson, ConfigFile, read_config, refused
from gateway.terminal_tables import show_tables

prices = typer.Typer(help="The price book.", no_args_is_help=True)

PriceFile = Annotated[Path | None, typer.Option("--prices", help="Price book, YAML; default: prices_file.")]

_SPARE = ("by volume", "source", "cached counts", "as of", "price id", "prompt", "write", "to")
_RATES = ("input", "cached", "write", "output")


@prices.command()
def check(
    prices: PriceFile = None,
    plans: Annotated[Path | None, typer.Option(help="Plans, YAML; default: plans_file.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Keys file, for its budgets; default: keys_file.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Read a price book, and plans, as the gateway would; show them, and what may be a slip."""
    settings = read_config(config, {})
    book = _book(prices or settings.prices_file)
    plans_file, keys_file = plans or settings.plans_file, keys or settings.keys_file
    try:
        found = None if plans_file is None else load_plans(plans_file)
        tenants = None if keys_file is None else read_keys_file(keys_file)
    except (BillingError, KeysFileInvalid) as error:
        raise refused(error) from None
    now = datetime.now(UTC)
    money = Money(book, tenants, found, settings.quota.unpriced)
    slips = [*advice(book, now), *currency_advice(money, now)]
    discounts = sum(len(one.discounts) for one in book.terms)
    have = None if found is None else len({one.tenant for one in found.assignments})
    if as_json:
        plan_count = None if found is None else len(found.plans)
        counts = {"prices": len(book.prices), "discounts": discounts, "plans": plan_count, "tenants_with_a_plan": have}
        print_json({"usable": True, "currency": book.currency, **counts, "look_at": slips})
        return
    table = _table(f"per million tokens, {book.currency}")
    for price in book.prices:
        _add(table, price, price.tenant or "list")
    _print(table, "a pipe")
    for word in slips:
        typer.echo(f"look at: {word}")
    typer.echo(f"usable, prices: {len(book.prices)}, discounts: {discounts}")
    if found is not None:
        typer.echo(f"usable, plans: {len(found.plans)}, tenants that have one: {have}")


@prices.command()
def show(
    model: Annotated[str | None, typer.Option(help="Only this model.", autocompletion=models)] = None,
    tenant: Annotated[
        str | None, typer.Option(help="What this tenant pays; default: the list.", autocompletion=tenants)
    ] = None,
    at: Annotated[str | None, typer.Option(help="When requests come in; default: now.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=0, help="Length of the prompt, for its tier.")] = None,
    apis: Annotated[bool, typer.Option("--apis", help="Instead, prices of public APIs to compare with.")] = False,
    as_json: AsJson = False,
    prices: PriceFile = None,
    config: ConfigFile = None,
) -> None:
    """What a tenant pays at a time, beside the list price. All rates are per million tokens."""
    if apis:
        _show_apis([one for one in api_prices() if model is None or model in (one.model, one.price.model)], as_json)
        return
    book = _book(prices or read_config(config, {}).prices_file)
    try:
        when = datetime.now(UTC) if at is None else parse_when(at)
    except BillingError as error:
        raise refused(error) from None
    models = sorted({price.model for price in book.prices}) if model is None else [model]
    quotes = {name: book.quote(name, tenant, when) for name in models}
    if as_json:
        print_json({name: quote_view(quote, prompt_tokens) for name, quote in quotes.items()})
        return
    table = _table(f"per million tokens, at {when.isoformat()}" + (f", for {tenant}" if tenant else ""))
    for name, quote in quotes.items():
        _add_quote(table, name, quote, prompt_tokens)
    _print(table, "--json")
    if model is not None and quotes[model].price is None:
        remark(
            f"the book has no price of {model!r} then; it has {', '.join(sorted({one.model for one in book.prices}))}"
        )


def _book(path: Path | None) -> PriceBook:
    if path is None:
        raise refused(
            "no price book: give --prices FILE, or prices_file in the configuration", code="prices_file_missing"
        )
    try:
        return PriceBook.load(path)
    except BillingError as error:
        raise refused(error) from None


def _table(title: str) -> Table:
    table = Table(
        "model", "for", "from", "to", "prompt", *_RATES, "cached counts", "by volume", "price id", title=title
    )
    for column in table.columns:
        column.overflow = "fold"
    return table


def _add_quote(table: Table, model: str, quote: Quote, prompt_tokens: int | None) -> None:
    if quote.price is None:
        table.add_row(escape(model), *("-",) * 8, "unpriced", "-", "-")
        return
    for price in {one.id: one for one in (quote.price, quote.list_price) if one is not None}.values():
        whose = price.tenant or ("list" if price is quote.list_price else "discounted")
        _add(table, price if prompt_tokens is None else price.for_prompt(prompt_tokens), whose)


def _add(table: Table, price: Price, whose: str) -> None:
    """A row for the price, and one for each of its tiers by context."""
    for over, tier in ((None, price), *((tier.over_prompt_tokens, tier.price) for tier in price.context_tiers)):
        rule = tier.cached_rule
        rates = (None if pico is None else per_mtok(pico) for pico in tier.rates.values())
        cells = (
            tier.model,
            whose,
            _moment(tier.valid_from),
            "-" if tier.valid_to is None else _moment(tier.valid_to),
            "any" if over is None else f"> {over:,}",
            *("as input" if rate is None else f"{rate} {tier.currency}" for rate in rates),
            "all" if rule == CachedRule() else f"from {rule.minimum_tokens:,} by {rule.step_tokens:,}",
            ", ".join(f"{one.bucket} > {one.over_tokens:,}: {per_mtok(one.rate_pico)}" for one in tier.volume_tiers)
            or "-",
            tier.id,
        )
        table.add_row(*map(escape, cells))


def _moment(when: datetime) -> str:
    """A day where it is the beginning of one, in UTC."""
    return when.strftime("%Y-%m-%d" if when.time() == time() else "%Y-%m-%d %H:%M:%SZ")


def _show_apis(found: Iterable[ApiPrice], as_json: bool) -> None:
    if as_json:
        print_json([one.view() for one in found])
        return
    table = Table("api", "model", "from", "to", "prompt", *_RATES, "as of", "source", title="USD per million tokens")
    for one in found:
        view = one.view()
        tiers = cast("list[Mapping[str, object]]", view["context_tiers"])
        for row in (view, *tiers):
            over = row.get("over_prompt_tokens")
            keys = ("input_per_mtok", "cached_input_per_mtok", "cache_write_per_mtok", "output_per_mtok")
            cells = (
                one.api,
                one.model,
                *(str(view[key] or "-")[:10] for key in ("from", "to")),
                "any" if over is None else f"> {over:,}",
                *(str(row[key] or "-") for key in keys),
                one.as_of,
                one.source,
            )
            table.add_row(*map(escape, cells))
    _print(table, "--json")


def _print(table: Table, whole: str) -> None:
    show_tables(table, spare=_SPARE, whole=whole)
