"""Who goes next: fair by what engines compute, strict by class without starving, first for a prefix within a bound."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.queueing import ClassRule, Order, OrderRules, Ticket, Went

EVERYWHERE = frozenset({"e0", "e1", "e2"})


def class_rule(name: str, share: float = 0.1) -> ClassRule:
    return ClassRule(name, max_wait_s=30, max_requests=1000, max_bytes=1 << 30, share=share)


ONE_CLASS = (class_rule("all"),)
EVEN_CLASSES = (class_rule("high"), class_rule("middle", 0.5), class_rule("low", 0.5))
THREE_CLASSES = (class_rule("high"), class_rule("middle", 0.2), class_rule("low", 0.05))


def ticket(tenant: str, tokens: int = 100, rank: int = 0, **more: object) -> Ticket:
    endpoints = more.pop("endpoints", EVERYWHERE)
    return Ticket(tenant, rank, tokens - 1, endpoints, **more)  # type: ignore[arg-type]  # output counts as 1


def filled(tickets: Sequence[Ticket], **rules: object) -> Order:
    order = Order(OrderRules(**{"classes": ONE_CLASS, **rules}))  # type: ignore[arg-type]  # of keywords
    for one in tickets:
        order.put(one)
    return order


def all_out(order: Order, endpoint: str = "e0") -> list[Ticket]:
    out = []
    while (pick := order.next_for(endpoint)) is not None:
        out.append(pick.ticket)
    return out


def test_a_tenant_with_a_thousand_requests_does_not_delay_one_with_a_single_request() -> None:
    flood = [ticket("crawler") for _ in range(1000)]
    alone = ticket("acme")
    assert all_out(filled([*flood, alone])).index(alone) <= 1


def test_a_tenant_with_huge_prompts_waits_for_as_many_tokens_of_the_others_as_it_takes_itself() -> None:
    order = filled([*(ticket("huge", 100_000) for _ in range(5)), *(ticket("small", 1000) for _ in range(300))])
    out = all_out(order)
    huge = [at for at, one in enumerate(out) if one.tenant == "huge"]
    assert [later - at for at, later in pairwise(huge)][:2] == [101, 101]


def test_a_weight_of_two_is_served_twice_as_much() -> None:
    tickets = [ticket(tenant) for tenant in ("gold", "plain") for _ in range(60)]
    out = all_out(filled(tickets, weights={"gold": 2.0}))
    counted = Counter(one.tenant for one in out[:60])
    assert counted["gold"] in (40, 41)


def test_requests_of_one_tenant_keep_their_order() -> None:
    tickets = [ticket("acme", 1 + at) for at in range(50)]
    assert all_out(filled(tickets)) == tickets


def test_who_comes_back_after_a_pause_has_saved_nothing_up() -> None:
    order = filled([ticket("busy") for _ in range(100)])
    for _ in range(50):
        order.next_for("e0")
    for _ in range(50):
        order.put(ticket("idle"))
    counted = Counter(one.tenant for one in all_out(order)[:20])
    assert abs(counted["busy"] - counted["idle"]) <= 1


def test_a_tenant_that_sends_one_request_at_a_time_gets_no_more_than_one_that_sends_many() -> None:
    order = filled([ticket("many", 100) for _ in range(1000)])
    served: Counter[str] = Counter()
    order.put(ticket("single", 1000))
    for _ in range(500):
        pick = order.next_for("e0")
        assert pick is not None
        served[pick.ticket.tenant] += pick.cost_tokens
        if pick.ticket.tenant == "single":
            order.put(ticket("single", 1000))
    assert abs(served["single"] - served["many"]) <= 1000


def test_a_higher_class_goes_first_and_a_lower_one_gets_its_share_all_the_same() -> None:
    order = filled(
        [ticket("a", rank=0) for _ in range(200)] + [ticket("b", rank=2) for _ in range(200)], classes=THREE_CLASSES
    )
    picks = [order.next_for("e0") for _ in range(100)]
    lower = [pick for pick in picks if pick is not None and pick.ticket.rank == 2]
    assert [pick.went for pick in lower] == [Went.SHARE] * len(lower)
    assert len(lower) in (4, 5)


def test_the_class_in_the_middle_is_not_starved_by_the_two_around_it() -> None:
    tickets = [ticket(f"t{rank}", rank=rank) for rank in range(3) for _ in range(500)]
    order = filled(tickets, classes=THREE_CLASSES)
    ranks = Counter(pick.ticket.rank for _ in range(400) if (pick := order.next_for("e0")) is not None)
    assert ranks[0] > ranks[1] > ranks[2] >= 10


def test_a_request_whose_prefix_is_there_goes_before_one_whose_is_not() -> None:
    cold, warm = ticket("acme"), ticket("acme", cached={"e1": 90})
    order = filled([cold, warm])
    pick = order.next_for("e1")
    assert pick is not None
    assert (pick.ticket, pick.went, pick.cost_tokens) == (warm, Went.PREFIX, 10)
    assert cold.passed == 1


def test_a_request_whose_prefix_is_elsewhere_lets_one_go_that_loses_nothing() -> None:
    kept, cold = ticket("acme", cached={"e1": 90}), ticket("bolt")
    order = filled([kept, cold])
    assert [pick.ticket for name in ("e0", "e1") if (pick := order.next_for(name)) is not None] == [cold, kept]


def blocks(*names: str) -> bytes:
    return b"".join(name.encode().ljust(8) for name in names)


def test_a_burst_of_one_prefix_that_nobody_has_yet_goes_where_its_first_request_went() -> None:
    """When the first is sent, the others know of it though they came before it was: the prefix is computed once."""
    burst = [ticket("acme", 48, hashes=blocks("a", "b"), block_size=16) for _ in range(3)]
    other = [ticket("acme", 48, hashes=blocks("c", "d"), block_size=16) for _ in range(3)]
    order = filled([burst[0], other[0], burst[1], other[1], burst[2], other[2]])
    where: dict[str, list[Ticket]] = {"e0": [], "e1": []}
    for name in ("e0", "e1") * 3:
        pick = order.next_for(name)
        assert pick is not None
        where[name].append(pick.ticket)
    assert where == {"e0": burst, "e1": other}


@pytest.mark.parametrize(
    ("mine", "tokens", "sent", "alike"),
    [
        (blocks("a", "b", "c"), 48, blocks("a", "b", "x"), True),
        (blocks("a", "b", "c"), 48, blocks("a", "x", "c"), False),
        (blocks("a", "b", "c"), 48, blocks("a"), False),
        (blocks("a"), 40, blocks("a"), False),
        (b"", 48, b"", False),
    ],
)
def test_prompts_begin_alike_where_more_than_half_of_the_one_is_the_beginning_of_the_other(
    mine: bytes, tokens: int, sent: bytes, alike: bool
) -> None:
    one = ticket("a", tokens + 1, hashes=mine, block_size=16)
    assert one.begins_as(ticket("a", 1000, hashes=sent, block_size=16)) is alike


def test_a_prefix_gives_way_once_somebody_was_passed_by_as_often_as_may_be() -> None:
    cold = ticket("acme")
    order = filled([cold, *(ticket("acme", cached={"e0": 90}) for _ in range(50))], most_passed=3)
    assert all_out(order).index(cold) == 3


def test_a_prefix_gives_no_tenant_more_than_the_quantum_and_a_request() -> None:
    warm = [ticket("warm", 100, cached={"e0": 90}) for _ in range(500)]
    order = filled([*(ticket("cold", 100) for _ in range(500)), *warm], quantum=200, most_passed=1000)
    served: Counter[str] = Counter()
    for _ in range(400):
        pick = order.next_for("e0")
        assert pick is not None
        served[pick.ticket.tenant] += pick.cost_tokens
        assert served["warm"] - served["cold"] <= 200 + 100


def test_an_endpoint_takes_only_what_it_may_serve() -> None:
    order = filled([ticket("acme", endpoints=frozenset({"e1"})), ticket("acme", endpoints=frozenset({"e0", "e1"}))])
    assert [one.endpoints for one in all_out(order, "e0")] == [frozenset({"e0", "e1"})]
    assert len(order) == 1


def test_a_model_that_stands_still_gives_nobody_a_start_at_another() -> None:
    """Who waits at a slow endpoint, served nothing, must not hold the others' beginning down."""
    slow, fast = frozenset({"slow"}), frozenset({"fast"})
    order = filled([ticket("stuck", endpoints=slow), *(ticket("old", endpoints=fast) for _ in range(200))])
    for _ in range(100):
        order.next_for("fast")
    for _ in range(100):
        order.put(ticket("new", endpoints=fast))
    counted = Counter(one.tenant for one in all_out(order, "fast")[:20])
    assert abs(counted["old"] - counted["new"]) <= 1


def test_who_had_its_turn_once_goes_before_the_others_of_its_tenant_and_of_several_the_first() -> None:
    order = filled([ticket("acme") for _ in range(3)])
    again = [ticket("acme", again=True) for _ in range(3)]
    for one in again:
        order.put(one)
    assert all_out(order)[:3] == again


def test_when_the_fleet_changes_what_waits_keeps_its_place() -> None:
    tickets = [ticket("acme", endpoints=frozenset({"gone"})) for _ in range(20)]
    order = filled(tickets)
    order.regroup(lambda one: frozenset({"e0"}) if one.number % 2 else EVERYWHERE)
    assert all_out(order) == tickets


tenants = st.sampled_from(["a", "b", "c"])
costs = st.integers(1, 5000)


@given(
    sizes=st.lists(costs, min_size=1, max_size=30),
    others=st.lists(costs, min_size=1, max_size=30),
    cached=st.lists(st.booleans(), min_size=60, max_size=60),
    quantum=st.integers(0, 10_000),
)
def test_tenants_that_wait_all_the_while_differ_by_no_more_than_the_quantum_and_the_largest_request(
    sizes: list[int], others: list[int], cached: list[bool], quantum: int
) -> None:
    tickets = [
        ticket(name, size, cached={"e0": size} if held else {})
        for (name, size), held in zip([("a", s) for s in sizes] + [("b", s) for s in others], cached, strict=False)
    ]
    order = filled(tickets, quantum=quantum)
    left, served = Counter(one.tenant for one in tickets), Counter[str]()
    while min(left["a"], left["b"]) > 0:
        pick = order.next_for("e0")
        assert pick is not None
        served[pick.ticket.tenant] += pick.cost_tokens
        left[pick.ticket.tenant] -= 1
        assert abs(served["a"] - served["b"]) <= quantum + max(*sizes, *others)


@given(
    arrivals=st.lists(
        st.tuples(tenants, st.integers(0, 2), costs, st.sampled_from([None, "e0", "e1"])), min_size=1, max_size=80
    ),
    most_passed=st.integers(0, 5),
    leave=st.sets(st.integers(0, 79)),
)
def test_everyone_goes_once_or_leaves_and_nothing_is_left_of_either(
    arrivals: list[tuple[str, int, int, str | None]], most_passed: int, leave: set[int]
) -> None:
    tickets = [
        ticket(tenant, cost, rank, cached={} if held is None else {held: cost}) for tenant, rank, cost, held in arrivals
    ]
    order = filled(tickets, classes=THREE_CLASSES, most_passed=most_passed)
    gone = [one for at, one in enumerate(tickets) if at in leave]
    assert [order.remove(one) for one in gone] == [True] * len(gone)
    assert [order.remove(one) for one in gone] == [False] * len(gone)
    out = all_out(order)
    assert Counter(map(id, [*gone, *out])) == Counter(map(id, tickets))
    assert len(order) == 0
    assert all(not queued.shares and queued.owed == 0 for queued in order._classes)


@given(st.lists(st.tuples(costs, st.booleans()), min_size=1, max_size=60), st.integers(0, 6))
def test_within_a_tenant_nobody_is_passed_by_more_often_than_may_be(
    requests: list[tuple[int, bool]], most_passed: int
) -> None:
    tickets = [ticket("a", cost, cached={"e0": cost} if held else {}) for cost, held in requests]
    places = {id(one): at for at, one in enumerate(all_out(filled(tickets, most_passed=most_passed)))}
    for at, one in enumerate(tickets):
        before = sum(places[id(later)] < places[id(one)] for later in tickets[at + 1 :])
        assert before <= most_passed
        assert one.passed <= most_passed


@given(
    st.lists(st.tuples(tenants, st.integers(0, 2), st.integers(500, 5000)), min_size=1, max_size=12),
    st.tuples(tenants, st.integers(0, 2), costs),
)
def test_who_waits_goes_though_others_come_without_end(
    stream: list[tuple[str, int, int]], waits: tuple[str, int, int]
) -> None:
    """As many come as go, and the same ones again and again, all with their prefix there: it still goes in time."""
    order = filled([ticket(tenant, cost, rank) for tenant, rank, cost in stream], classes=EVEN_CLASSES)
    mine = ticket(waits[0], waits[2], waits[1], cached={"e1": waits[2]})
    order.put(mine)
    # In its class go at most those that wait already, twice: of three tenants each has a third, and a quantum more.
    of_its_class = 3 * (len(stream) * 5000 + waits[2] + 8192 + 5000)
    most_tokens = of_its_class / 0.5 + 2 * 5000
    served = 0
    for number in range(100_000):
        pick = order.next_for("e0")
        assert pick is not None
        if pick.ticket is mine:
            return
        served += pick.cost_tokens
        assert served <= most_tokens
        tenant, rank, cost = stream[number % len(stream)]
        order.put(ticket(tenant, cost, rank, cached={"e0": cost // 2 + 1}))


@given(st.lists(st.tuples(tenants, costs), min_size=1, max_size=40), costs)
def test_what_goes_before_a_request_is_foretold_where_nothing_else_comes(
    waiting: list[tuple[str, int]], cost: int
) -> None:
    order = filled([ticket(tenant, tokens) for tenant, tokens in waiting], quantum=0)
    mine = ticket("a", cost)
    foretold = order.ahead_of(mine)
    order.put(mine)
    before = 0
    while (pick := order.next_for("e0")) is not None and pick.ticket is not mine:
        before += pick.cost_tokens
    largest = max(tokens for _, tokens in waiting)
    assert abs(foretold - before) <= 3 * max(largest, cost)
