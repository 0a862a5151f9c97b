"""Faults by a seed."""

import random

import pytest

from bench.faults.schedule import pairs, singles
from bench.faults.types import Kind

ENGINES = [f"engine-{number}" for number in range(6)]
GATEWAYS = [f"gateway-{number}" for number in range(3)]


def test_every_kind_is_there_and_a_seed_is_a_schedule() -> None:
    deck = singles(ENGINES, GATEWAYS, random.Random(1))
    assert {fault.kind for fault in deck} == set(Kind)
    assert deck == singles(ENGINES, GATEWAYS, random.Random(1))
    assert deck != singles(ENGINES, GATEWAYS, random.Random(2))
    assert len({fault.name for fault in deck}) == len(deck)


def test_a_ledger_that_is_a_file_is_only_full() -> None:
    deck = singles(ENGINES, GATEWAYS, random.Random(1), has_server=False)
    assert [fault.kind for fault in deck if fault.part == "ledger"] == [Kind.DISK_FULL]


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_of_two_parts_and_each_fault_is_in_some(seed: int) -> None:
    found = pairs(ENGINES, GATEWAYS, 24, random.Random(seed))
    assert len(found) == 24
    assert all(one.part != other.part for one, other in found)
    sorts = {(one.kind, one.part.partition("-")[0]) for pair in found for one in pair}
    assert sorts == {(one.kind, one.part.partition("-")[0]) for one in singles(ENGINES, GATEWAYS, random.Random(0))}
