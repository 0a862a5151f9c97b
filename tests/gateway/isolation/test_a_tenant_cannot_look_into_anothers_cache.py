"""What one tenant has made warm, another cannot tell from what nobody has sent; and the test would see it."""

import asyncio
from pathlib import Path
from random import Random

import httpx
import pytest

from gateway.edge.auth import new_key
from gateway.planning import Planner
from tests.gateway.conftest import StartGateway
from tests.gateway.isolation.warmth import NOISE, PAIRS, SURE_Z, WarmEngine, World, attack, leaks, rank_z, share_z
from tests.hostile import HostileServer

FEW = 60
"""Pairs in which a leak shows that is as large as these are."""
EVERYTHING = {"headers", "cached tokens", "endpoint", "time to the first token"}


async def attacked(start_gateway: StartGateway, tmp_path: Path, pairs: int = PAIRS, **flags: object) -> set[str]:
    """By what a tenant can tell what another one has sent."""
    made = {name: new_key() for name in ("victim", "attacker")}
    keys = tmp_path / "keys.yaml"
    entries = [f"  - {{id: {name}, keys: [{{id: {name}-1, sha256: {made[name][1]}}}]}}\n" for name in made]
    keys.write_text("tenants:\n" + "".join(entries))
    world = World(Random(7))
    async with HostileServer([WarmEngine(world)]) as one, HostileServer([WarmEngine(world)]) as other:
        gateway = await asyncio.to_thread(start_gateway, one.url, other.url, keys_file=keys, **flags)
        clients = [
            httpx.AsyncClient(base_url=gateway.url, timeout=60, headers={"authorization": f"Bearer {key}"})
            for key, _ in made.values()
        ]
        async with clients[0] as victim, clients[1] as attacker:
            return leaks(*await attack(world, victim, attacker, pairs))


async def test_a_probe_tells_nothing_of_what_another_tenant_has_cached(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    assert await attacked(start_gateway, tmp_path) == set()


async def test_without_isolation_the_same_probes_tell_everything(start_gateway: StartGateway, tmp_path: Path) -> None:
    # Choices say least: all of the probes against about half of the controls, which is 8 standard deviations of PAIRS.
    assert await attacked(start_gateway, tmp_path, isolation="none") == EVERYTHING


async def test_tokens_remembered_for_all_would_show_in_the_time(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planner, "_space", lambda *_: 0)
    assert await attacked(start_gateway, tmp_path, FEW) == {"time to the first token"}


@pytest.mark.parametrize("seed", range(100))
def test_the_rank_test_sees_a_shift_of_a_tenth_of_the_prefill(seed: int) -> None:
    rng = Random(seed)
    some = [rng.gauss(1.0, NOISE) for _ in range(PAIRS)]
    assert abs(rank_z(some, [rng.gauss(1.0, NOISE) for _ in range(PAIRS)])) < SURE_Z
    assert rank_z(some, [rng.gauss(0.9, NOISE) for _ in range(PAIRS)]) > SURE_Z


def test_the_tests_themselves_by_hand() -> None:
    assert rank_z([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert rank_z([3.0, 4.0], [1.0, 2.0]) == pytest.approx(2 / (2 * 2 * 5 / 12) ** 0.5)
    assert share_z(0, 0, 10) == share_z(10, 10, 10) == 0.0
    assert share_z(10, 0, 10) == pytest.approx(20**0.5)
