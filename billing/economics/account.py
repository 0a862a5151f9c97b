"""The account of a period: every endpoint's hours, to whom they went, and what of them stood idle. Pure.

    costs file --> hours with a rate --.
    calls, by endpoint and start ------+--> split --> Spent by endpoint and Who --> idle shared out --> EndpointAccount

    busy cost of all who used an endpoint + idle cost = cost of the endpoint        exactly
    fully loaded = busy + a share of the idle cost, in the proportion of the busy cost at that endpoint

An endpoint that nobody used has idle cost which nobody bears: it is in the totals, with no tenant. A call is counted,
with its tokens, in the period in which it ended; its cost lies where its time lies.
Costs: O(calls log calls an hour); memory for the calls of an hour and for one `Spent` for each endpoint and `Who`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from billing.economics.rates import CostBook, EndpointRate
from billing.economics.split import shared, split
from billing.economics.types import Call, Spent, Who


@dataclass(frozen=True, slots=True)
class EndpointAccount:
    """An endpoint in a period. `rate` is its last one there, None where it never had one.

    `cost_pico` is of the time with a rate; `unrated_us` is the rest, of which the cost is unknown. `loaded_pico` is the
    share of the idle cost that each bears beside the busy cost in `spent`.
    """

    endpoint_id: str
    rate: EndpointRate | None
    cost_pico: int
    idle_pico: int
    busy_us: int
    idle_us: int
    unrated_us: int
    spent: Mapping[Who, Spent]
    loaded_pico: Mapping[Who, int]

    @property
    def busy_pico(self) -> int:
        """The cost of the busy time; with `idle_pico` all of it."""
        return sum(one.busy_pico for one in self.spent.values())

    @property
    def utilisation(self) -> float | None:
        """Busy time over all time with a rate."""
        known_us = self.busy_us + self.idle_us
        return self.busy_us / known_us if known_us else None

    @property
    def unborne_pico(self) -> int:
        """Idle cost that nobody bears, as nobody used the endpoint."""
        return self.idle_pico - sum(self.loaded_pico.values())


@dataclass(frozen=True, slots=True)
class Account:
    """All endpoints in [start_us, end_us), sorted by name. `kv_is_fixed`: some decoding was split by a fixed ratio."""

    currency: str
    start_us: int
    end_us: int
    endpoints: tuple[EndpointAccount, ...]

    @property
    def cost_pico(self) -> int:
        """What all endpoints cost."""
        return sum(one.cost_pico for one in self.endpoints)

    @property
    def idle_pico(self) -> int:
        """What of it stood idle."""
        return sum(one.idle_pico for one in self.endpoints)

    @property
    def unborne_pico(self) -> int:
        """What of that nobody bears."""
        return sum(one.unborne_pico for one in self.endpoints)

    @property
    def kv_is_fixed(self) -> bool:
        """Whether reading KV was taken for a fixed part of decoding at some endpoint."""
        return any(one.rate is not None and one.rate.kv.is_fixed for one in self.endpoints)

    def lines(self) -> Iterator[tuple[EndpointAccount, Who, Spent, int]]:
        """Endpoint, whom it served, what they spent there, and their share of its idle cost."""
        for one in self.endpoints:
            for who, spent in one.spent.items():
                yield one, who, spent, one.loaded_pico.get(who, 0)


def account_of(
    book: CostBook, start_us: int, end_us: int, calls_by_endpoint: Iterable[tuple[str, Iterable[Call]]]
) -> Account:
    """Account for a period. Each endpoint's calls come once, by start, none of which ended before the period; endpoints
    without any need not be named."""
    found = {
        endpoint_id: _endpoint(book, endpoint_id, (start_us, end_us), calls) for endpoint_id, calls in calls_by_endpoint
    }
    for endpoint_id in book.endpoint_ids:
        if endpoint_id not in found:
            found[endpoint_id] = _endpoint(book, endpoint_id, (start_us, end_us), ())
    return Account(book.currency, start_us, end_us, tuple(found[name] for name in sorted(found)))


def _endpoint(book: CostBook, endpoint_id: str, period_us: tuple[int, int], calls: Iterable[Call]) -> EndpointAccount:
    spent: dict[Who, Spent] = {}
    cost_pico = idle_pico = busy_us = idle_us = unrated_us = 0
    last_rate: EndpointRate | None = None
    for start_us, end_us, here in _hours(book, endpoint_id, period_us, calls):
        rate = book.rate_at(endpoint_id, start_us)
        if rate is None:
            unrated_us += end_us - start_us
        else:
            last_rate = rate
            hour = split(start_us, end_us, rate.cost_pico(start_us, end_us), here, rate.kv)
            cost_pico += hour.cost_pico
            idle_pico += hour.idle_pico
            busy_us += hour.busy_us
            idle_us += hour.idle_us
            for call, cost in zip(here, hour.spent, strict=True):
                _add_cost(spent.setdefault(call.who, Spent()), cost)
        for call in here:
            if start_us <= call.end_us < end_us:
                _count(spent.setdefault(call.who, Spent()), call, rate, book.currency)
    weights = {who: spent[who].busy_pico for who in sorted(spent, key=_in_order)}
    used = idle_pico and sum(weights.values())
    loaded = dict(zip(weights, shared(idle_pico, list(weights.values())), strict=True)) if used else {}
    return EndpointAccount(endpoint_id, last_rate, cost_pico, idle_pico, busy_us, idle_us, unrated_us, spent, loaded)


def _hours(
    book: CostBook, endpoint_id: str, period_us: tuple[int, int], calls: Iterable[Call]
) -> Iterator[tuple[int, int, list[Call]]]:
    """Each hour of a period with the calls that were open in it, or ended at its very start."""
    coming = iter(calls)
    ahead = next(coming, None)
    here: list[Call] = []
    for start_us, end_us in book.cuts(endpoint_id, *period_us):
        here = [call for call in here if call.end_us >= start_us]
        while ahead is not None and ahead.start_us < end_us:
            here.append(ahead)
            ahead = next(coming, None)
        yield start_us, end_us, here


def _add_cost(to: Spent, cost: Spent) -> None:
    to.prefill_pico += cost.prefill_pico
    to.context_pico += cost.context_pico
    to.cached_pico += cost.cached_pico
    to.output_pico += cost.output_pico
    to.unmeasured_pico += cost.unmeasured_pico
    to.lost_pico += cost.lost_pico


def _count(to: Spent, call: Call, rate: EndpointRate | None, currency: str) -> None:
    """Once for each call: where it ended. Tokens whose cost is unknown are no divisor of a cost. An answer whose prompt
    another endpoint computed is counted there, but for what is its own."""
    measured = call.measured
    if rate is None:
        to.calls_without_rate += 1
    if call.lost:
        to.lost_calls += 1
    elif measured is None or rate is None:
        to.unmeasured_calls += 1
    else:
        to.output_tokens += measured.output_tokens
        to.decode_us += measured.decode_us
        if measured.is_carried:
            return
        to.measured_calls += 1
        to.fresh_tokens += measured.fresh_tokens
        to.cached_tokens += measured.cached_tokens
        to.prefill_us += measured.prefill_us
        to.fresh_squared += measured.fresh_tokens**2
        to.prefill_us_fresh += measured.prefill_us * measured.fresh_tokens
        if call.saved_pico is not None and call.saved_currency == currency:
            to.saved_pico += call.saved_pico


def _in_order(who: Who) -> tuple[str, str, str, str]:
    return who.tenant_id, who.model, who.end_user or "", who.job_id or ""
