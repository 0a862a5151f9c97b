"""Replicas see what they wrote at once, and what others wrote a round trip later."""

from gateway.sim.shared_view import ReplicaIndex
from prefix_index import Claim, Load
from tests.gateway.sim.scripted import chain

PROMPT = chain("a", 32)


def replicas(count: int, delay_s: float = 0.5, load_interval_s: float = 1.0) -> list[ReplicaIndex]:
    indexes = [ReplicaIndex(delay_s, load_interval_s) for _ in range(count)]
    for index in indexes:
        index.share(indexes)
        index.set_capacity("e0", 1000)
    return indexes


def known(index: ReplicaIndex, now_s: float) -> int:
    """Blocks of the prompt that the replica knows of."""
    return index.match(PROMPT, now_s).blocks.get("e0", 0)


def test_a_write_is_seen_by_its_writer_at_once_and_by_others_later() -> None:
    one, two = replicas(2)
    one.now_s = 10.0
    one.observe("e0", PROMPT, Claim.CONFIRMED)
    assert (known(one, 10.0), known(two, 10.49), known(two, 10.5)) == (8, 0, 8)


def test_writes_arrive_in_the_order_in_which_they_were_made() -> None:
    one, two = replicas(2)
    one.now_s = 10.0
    one.observe("e0", PROMPT, Claim.CONFIRMED)
    one.now_s = 10.2
    one.forget("e0", PROMPT, 3, Claim.CONFIRMED)
    assert (known(two, 10.6), known(two, 10.8), known(one, 10.8)) == (8, 3, 3)
    one.now_s = 11.0
    one.clear("e0")
    assert (known(two, 11.4), known(two, 11.6)) == (3, 0)


def test_what_is_written_here_alone_nobody_else_sees() -> None:
    one, two = replicas(2)
    one.observe_here("e0", PROMPT, Claim.CONFIRMED)
    assert (known(one, 5.0), known(two, 5.0)) == (8, 0)
    one.forget_here("e0", PROMPT, 1, Claim.CONFIRMED)
    assert known(one, 5.0) == 1


def test_loads_are_ones_own_at_once_and_those_of_others_as_last_published() -> None:
    one, two = replicas(2)
    one.set_load("e0", Load(1, 100, 10))
    two.set_load("e0", Load(2, 200, 20))
    assert one.match(PROMPT, 0.0).loads == {"e0": Load(3, 300, 30)}
    two.set_load("e0", Load(5, 500, 50))
    assert one.match(PROMPT, 0.9).loads == {"e0": Load(3, 300, 30)}
    assert two.match(PROMPT, 0.9).loads == {"e0": Load(6, 600, 60)}
    assert one.match(PROMPT, 1.0).loads == {"e0": Load(6, 600, 60)}


def test_an_endpoint_with_nothing_outstanding_has_no_load() -> None:
    (one,) = replicas(1)
    one.set_load("e0", Load(1, 100, 10))
    one.set_load("e0", Load())
    assert not one.match(PROMPT, 0.0).loads
