"""What the composition root does once at the start, beside composing."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, closing
from datetime import datetime
from typing import Final

from backends import EndpointId
from billing.reports.reading import place_of
from gateway.config import Config, ledger_place
from gateway.cost_pages import CostParts
from gateway.discovery.members import Discovering
from gateway.edge.auth import Authenticator
from gateway.fleet import Fleet
from gateway.hourly_costs import HourlyCosts, with_listed
from gateway.invoice_pages import INVOICES_PATH, invoice_pages
from gateway.log_lines import LOGGER
from gateway.parity import ParityBook
from gateway.report_pages import USAGE_PATH, ReportPages
from gateway.status import TenantPage
from prefix_index import Chain, Claim, SharedIndex

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


def cost_parts(
    config: Config, wall: Callable[[], datetime], costs: HourlyCosts, fleet: Fleet, discovering: Discovering
) -> CostParts:
    """What costs are reported from; from now on they are also those that the lists of endpoints name."""

    def listed(endpoint_id: str) -> str | None:
        report = discovering.report_of(endpoint_id)
        return None if report is None else report.traits.gpu_cost_per_hour

    costs.listed = listed
    return CostParts(config, wall, lambda book: with_listed(book, [one.id for one in fleet.snapshot()], listed))


def observe_turn(index: SharedIndex, fleet: Fleet, holder: str, chain: Chain) -> None:
    """What an answer has left in a cache; where events tell of it, they do, and of what has gone since."""
    endpoint_id = fleet.endpoint_of(holder)
    if endpoint_id is None:
        return
    observe = index.observe_here if fleet.is_followed(endpoint_id) else index.observe
    observe(holder, chain, Claim.CONFIRMED)


def unsalted(config: Config, authenticator: Authenticator) -> str:
    """The salt of the prompts that go to engines which take none: there is one share group then, or no salt at all."""
    salts = authenticator.salts
    return salts[0] if config.isolation == "salt" and len(salts) == 1 else ""


def trust_again(parity: ParityBook, fleet: Fleet, endpoint_id: EndpointId, _generation: int) -> None:
    """The engine of an endpoint is another one now: what its predecessor said of our tokens is forgotten."""
    facts = fleet.seen(endpoint_id).facts
    for model in facts.models if facts is not None else ():
        parity.trust_again(model.id)
