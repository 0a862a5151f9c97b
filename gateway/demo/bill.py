"""What the ledger of a run says: the bill per tenant, and the sum of cached tokens that the engines reported."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from billing import BillingError, Report, Tally, UsageFlag, report
from billing.money import amount_text
from gateway.demo.types import BillLine, DemoFailed

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def read_bill(ledger: Path) -> tuple[tuple[BillLine, ...], BillLine]:
    """A line for each tenant, and their total. Raises `DemoFailed` where anything is unpriced or in two currencies."""
    found = _everything(ledger)
    if len(found.totals) != 1:
        raise DemoFailed(f"one currency was expected in the bill, not {len(found.totals)}")
    [(currency, total)] = found.totals.items()
    lines = tuple(_line(line.tenant_id, line.currency, line.tally) for line in found.lines)
    return lines, _line("total", currency, total)


def read_cached_tokens(ledger: Path) -> int:
    """Sum of cached tokens in a ledger. Raises `DemoFailed` where one is unknown: it could not be compared."""
    totals = _everything(ledger).totals.values()
    unreported = sum(total.flags[UsageFlag.UNREPORTED] for total in totals)
    if unreported:
        raise DemoFailed(f"the ledger has {unreported} requests whose engine did not report cached tokens")
    return sum(total.cached_tokens for total in totals)


def _everything(ledger: Path) -> Report:
    try:
        return report(ledger, _BEGINNING, datetime.now(UTC) + timedelta(days=1))
    except BillingError as error:
        raise DemoFailed(f"the ledger cannot be read: {error}") from error


def _line(tenant: str, currency: str | None, tally: Tally) -> BillLine:
    unpriced = tally.flags[UsageFlag.UNPRICED]
    if unpriced or tally.full_pico is None or tally.charged_pico is None or currency is None:
        raise DemoFailed(f"{unpriced} requests of {tenant} have no price")
    return BillLine(
        tenant=tenant,
        requests=tally.requests,
        prompt_tokens=tally.prompt_tokens,
        cached_tokens=tally.cached_tokens,
        output_tokens=tally.output_tokens,
        full_price=amount_text(tally.full_pico),
        charged=amount_text(tally.charged_pico),
        saved=amount_text(tally.full_pico - tally.charged_pico),
        currency=currency,
    )
