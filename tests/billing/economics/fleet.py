"""Ledgers of tests: requests of tenants at endpoints, with all that is known of them, written as a gateway would."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from billing import Attempt, KeptChain, Price, SettlementState, Usage, open_ledger
from billing.economics import CostBook
from billing.economics.rates import EndpointRate
from billing.money import PICO
from tests.billing.samples import LONG_AGO, book, opened, price, settled

ENDPOINT = "gpu-a"
NOON = datetime(2025, 11, 15, 12, tzinfo=UTC)
"""Long over: a period that is not is read up to now alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, `at_s` after noon, that took `for_s`; each argument left out is ordinary."""

    id: str
    at_s: float = 0
    for_s: float = 10
    tenant: str = "acme"
    model: str = "llama"
    user: str | None = None
    job: str | None = None
    group: str | None = None
    endpoint: str = ENDPOINT
    usage: Usage | None = Usage(1000, 800, 100)  # noqa: RUF009 - frozen
    prefill_s: float | None = 1.0
    decode_s: float | None = 9.0
    state: SettlementState = SettlementState.COMPLETE
    failed_at: tuple[str, ...] = ()
    """Endpoints that were tried before, for a second each."""
    chain: bytes | None = None


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


async def write(path: Path | str, asked: Iterable[Asked], *prices: Price) -> None:
    async with open_ledger(path, book(*(prices or (price(),)))) as ledger:
        for one in asked:
            request = replace(
                opened(one.id, at=moment(one.at_s), tenant=one.tenant, model=one.model),
                end_user=one.user,
                job_id=one.job,
                share_group=one.group or one.tenant,
                chain=None if one.chain is None else KeptChain(100, one.chain),
            )
            await ledger.open(request)
            end = moment(one.at_s + one.for_s)
            tried = [
                Attempt(one.id, n, name, moment(one.at_s), moment(one.at_s + 1), "ConnectFailed", None)
                for n, name in enumerate(one.failed_at)
            ]
            served = Attempt(one.id, len(tried), one.endpoint, moment(one.at_s), end, "answered", 200)
            ended = settled(one.id, one.usage, state=one.state, at=end, attempts=(*tried, served))
            await ledger.settle(
                replace(ended, endpoint_id=one.endpoint, prefill_s=one.prefill_s, decode_s=one.decode_s)
            )


def rate(endpoint: str = ENDPOINT, per_hour: int = 3600, since: datetime = LONG_AGO) -> EndpointRate:
    """3,600 an hour is 1 a second."""
    return EndpointRate(endpoint, "H100", 1, Fraction(per_hour * PICO), owned=False, valid_from=since)


def costs(*rates: EndpointRate) -> CostBook:
    return CostBook("USD", rates or (rate(),))
