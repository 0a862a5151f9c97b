"""What the composition root does once at the start, beside composing."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from typing import Final

from billing.reports.reading import place_of
from gateway.config import Config, ledger_place
from gateway.invoice_pages import INVOICES_PATH, invoice_pages
from gateway.log_lines import LOGGER
from gateway.report_pages import USAGE_PATH, ReportPages
from gateway.status import TenantPage

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def tenant_pages_of(config: Config, stack: AsyncExitStack) -> tuple[ReportPages, Mapping[str, TenantPage]]:
    """What a tenant reads about itself, by path; the reports are the operator's too."""
    reports = stack.enter_context(closing(ReportPages(ledger_place(config))))
    invoices = stack.enter_context(closing(invoice_pages(ledger_place(config), config.invoicing_file)))
    return reports, {USAGE_PATH: reports.of_tenant, INVOICES_PATH: invoices.of_tenant}


def say_what_runs(config: Config) -> None:
    """One line at the start, and a warning where strangers could call."""
    fields = {
        "backends": len(config.backends),
        "policy": config.scheduling.policy,
        "observe": config.scheduling.observe,
        "keys": config.keys_file is not None,
        "prices": config.prices_file is not None,
        "ledger": place_of(ledger_place(config)),
    }
    LOGGER.info("starting", extra={"fields": fields})
    if config.keys_file is None and config.listen.host not in _LOOPBACK:
        LOGGER.warning("listening beyond this machine without a keys file: everyone who reaches it may call")
