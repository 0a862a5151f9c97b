"""What the configuration adds to an account of costs: plans, and prices to compare with."""

from billing import PriceBook
from billing.economics import Assumptions, Ledgers, PlanTerms, plan_revenue, public_prices
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
