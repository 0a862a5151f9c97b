"""What the configuration adds to an account of costs: plans, and prices to compare with. The line below its tables."""

from billing import PriceBook
from billing.economics import Assumptions, CostReport, Ledgers, PlanTerms, cost_json, plan_revenue, public_prices
from billing.prices.plans_file import load_plans
from billing.when import from_us
from gateway.config import Config


def assumptions(ledgers: Ledgers, config: Config, currency: str, period_us: tuple[int, int]) -> Assumptions:
    """Read anew each time. Raises `PricesInvalid`, `LedgerUnavailable`."""
    start, end = map(from_us, period_us)
    compared = public_prices(end)
    if config.plans_file is None:
        return Assumptions(api_prices=compared)
    book = PriceBook.load(config.prices_file) if config.prices_file else PriceBook.empty()
    terms = PlanTerms(load_plans(config.plans_file), book, currency)
    return Assumptions(api_prices=compared, plans=list(plan_revenue(ledgers, terms, start, end)))


def total_line(found: CostReport) -> str:
    """The sum in words: busy and idle cost are what the endpoints cost."""
    said = cost_json(found, ())
    return (
        f"{said['from']} to {said['to']} (exclusive): {said['amount_busy']} busy + {said['amount_idle']} idle = "
        f"{said['amount_cost']} {said['currency']}, which is what the endpoints cost. Internal: not for tenants."
    )
