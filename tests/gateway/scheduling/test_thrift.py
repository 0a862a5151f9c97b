"""Who is cheaper an hour, among those that are nearly as quick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scheduling import Decision, Demand, Thrift, cheapest, decide_by_cost
from gateway.types import Reason
from tests.gateway.scheduling.test_decide import candidate

PRICES: dict[str, float | None] = {"dear": 10.0, "cheap": 1.0, "cheap too": 1.0, "unknown": None}


def decided(*queued: tuple[str, int], within_s: float = 0.1, no_affinity: Reason | None = None) -> Decision:
    """A thousand tokens are computed in a second, whoever does it."""
    return decide_by_cost(
        [candidate(name, queued=tokens) for name, tokens in queued],
        {},
        demand=Demand(1000, 100),
        near_tie_s=0.002,
        chance=0.0,
        no_affinity=no_affinity,
        thrift=Thrift(PRICES.get, within_s),
    )


@pytest.mark.parametrize(
    ("queued", "chosen", "reason"),
    [
        ((("dear", 0), ("cheap", 90)), "cheap", Reason.CHEAPER),
        ((("dear", 0), ("cheap", 110)), "dear", Reason.NO_PREFIX),
        ((("dear", 0), ("cheap", 0)), "cheap", Reason.NO_PREFIX),
        ((("dear", 90), ("cheap", 0)), "cheap", Reason.NO_PREFIX),
        ((("dear", 0), ("unknown", 0), ("cheap", 90)), "dear", Reason.NO_PREFIX),
        ((("dear", 0), ("cheap", 90), ("cheap too", 50)), "cheap too", Reason.CHEAPER),
        ((("cheap", 50), ("cheap too", 0)), "cheap too", Reason.NO_PREFIX),
    ],
)
def test_the_cheaper_one_is_chosen_within_so_many_seconds_and_not_beyond(
    queued: tuple[tuple[str, int], ...], chosen: str, reason: Reason
) -> None:
    decision = decided(*queued)
    assert (decision.endpoint_id, decision.reason) == (chosen, reason)


def test_what_is_not_known_of_a_prefix_stays_the_reason() -> None:
    decision = decided(("dear", 0), ("cheap", 90), no_affinity=Reason.UNSUPPORTED_CONTENT)
    assert (decision.endpoint_id, decision.reason) == ("cheap", Reason.UNSUPPORTED_CONTENT)


@given(
    st.lists(st.tuples(st.floats(0, 10), st.sampled_from([None, 1.0, 2.0, 3.0])), min_size=1, max_size=8),
    st.floats(0.001, 5),
)
def test_nobody_who_is_kept_is_too_slow_or_dearer_than_another_who_is_quick_enough(
    costs_and_prices: list[tuple[float, float | None]], within_s: float
) -> None:
    names = [f"e{at}" for at in range(len(costs_and_prices))]
    prices = {name: price for name, (_, price) in zip(names, costs_and_prices, strict=True)}
    costs = [cost for cost, _ in costs_and_prices]
    found = cheapest([candidate(name) for name in names], costs, Thrift(prices.get, within_s))
    near = [name for name, cost in zip(names, costs, strict=True) if cost <= min(costs) + within_s]
    if found is None:
        assert len({prices[name] for name in near}) == 1 or any(prices[name] is None for name in near)
        return
    kept = [one.endpoint_id for one in found[0]]
    lowest = min(price for name in near if (price := prices[name]) is not None)
    assert kept == [name for name in near if prices[name] == lowest]
    assert found[1] == [costs[names.index(name)] for name in kept]
