"""Who could have been served, by the definition."""

import pytest

from bench.faults.judging import World, could_be_served, is_explained
from bench.faults.types import Acted, Asked, Fault, Kind, Outcome, Try

ENGINES = {"large": ["engine-0", "engine-1"], "small": ["engine-2"]}


def world(*acted: Acted) -> World:
    return World(ENGINES, ["gateway-0", "gateway-1"], acted, 5.0)


def request(from_s: float, to_s: float, model: str = "large") -> Asked:
    return Asked("c-0", model, "acme", True, from_s, outcome=Outcome.FAILED, ended_s=to_s)


def acted(part: str, from_s: float, until_s: float, kind: Kind = Kind.KILL, gateway: str | None = None) -> Acted:
    return Acted(Fault(kind, part, gateway), from_s, until_s)


def test_one_endpoint_is_enough() -> None:
    assert could_be_served(request(10, 12), world(acted("engine-0", 0, 20)))


def test_nobody_can_serve_while_all_endpoints_of_the_model_are_away() -> None:
    gone = world(acted("engine-0", 0, 20), acted("engine-1", 5, 20))
    assert not could_be_served(request(10, 12), gone)
    assert could_be_served(request(10, 12, "small"), gone)


def test_an_endpoint_that_was_there_for_an_instant_at_the_beginning_counts() -> None:
    assert could_be_served(request(10, 30, "small"), world(acted("engine-2", 11, 40)))


def test_an_endpoint_that_came_back_counts_once_it_is_settled() -> None:
    away = world(acted("engine-2", 5, 20))
    assert not could_be_served(request(10, 24.9, "small"), away)
    assert could_be_served(request(10, 25, "small"), away)


def test_between_two_faults_it_must_have_been_settled_too() -> None:
    assert not could_be_served(request(10, 24, "small"), world(acted("engine-2", 5, 12), acted("engine-2", 14, 20)))


@pytest.mark.parametrize("kind", [Kind.SLOW, Kind.CLOCK, Kind.DISK_FULL])
def test_what_is_slow_or_has_another_clock_is_no_excuse(kind: Kind) -> None:
    assert could_be_served(request(10, 12, "small"), world(acted("engine-2", 0, 20, kind)))


@pytest.mark.parametrize("part", ["valkey", "ledger"])
def test_no_index_and_no_ledger_are_no_excuse(part: str) -> None:
    assert could_be_served(request(10, 12, "small"), world(acted(part, 0, 20)))


def test_a_way_that_is_cut_for_one_gateway_is_open_for_the_other() -> None:
    assert could_be_served(request(10, 12, "small"), world(acted("engine-2", 0, 20, Kind.PARTITION, "gateway-0")))
    both = [acted("engine-2", 0, 20, Kind.PARTITION, "gateway-0"), acted("gateway-1", 0, 20)]
    assert not could_be_served(request(10, 12, "small"), world(*both))


def answered(endpoint: str, gateway: str, from_s: float, to_s: float) -> Asked:
    found = request(from_s, to_s)
    found.tries = [Try("c-0.0", gateway, from_s, to_s, endpoint=endpoint)]
    return found


def test_a_cut_answer_is_explained_by_a_fault_where_it_came_from() -> None:
    fault = [acted("engine-0", 10, 12)]
    assert is_explained(answered("engine-0", "gateway-0", 9, 11), fault)
    assert not is_explained(answered("engine-1", "gateway-0", 9, 11), fault)
    assert not is_explained(answered("engine-0", "gateway-0", 7, 9), fault)
    assert is_explained(answered("engine-1", "gateway-1", 9, 11), [acted("gateway-1", 10, 12)])
    assert not is_explained(answered("engine-0", "gateway-0", 9, 11), [acted("engine-0", 10, 12, Kind.SLOW)])
