"""Leases on a real server: one replica holds each, and another one has it once that one is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from prefix_index.kv_events.lease import LeaseOptions, Leases
from prefix_index.redis_clients import connect
from prefix_index.redis_wire import pool_tag
from tests.prefix_index.door import Door, eventually
from tests.prefix_index.servers import cluster

LONG = LeaseOptions(ttl_s=60.0, renew_s=0.02, deadline_s=10.0)
"""What is lost in these tests is not lost by waiting."""
SHORT = LeaseOptions(ttl_s=0.4, renew_s=0.02, deadline_s=0.2)


@asynccontextmanager
async def replica(url: str, name: str, options: LeaseOptions, pool: str = "p") -> AsyncIterator[Leases]:
    """The leases of one replica, killed at the end."""
    async with connect(url) as client, asyncio.TaskGroup() as group:
        leases = Leases(client, pool=pool, replica=name, options=options)
        task = group.create_task(leases.run())
        try:
            yield leases
        finally:
            task.cancel()


def ignore() -> None:
    """Nobody is told."""


async def test_one_of_two_replicas_holds_a_lease_and_gives_it_to_the_other(server_url: str) -> None:
    async with (
        replica(server_url, "one", LONG, "give") as one,
        replica(server_url, "two", LONG, "give") as two,
    ):
        told: list[str] = []
        first, second = one.lease("e", lambda: told.append("one")), two.lease("e", lambda: told.append("two"))
        one.want(first)
        await eventually(lambda: first.is_held)
        two.want(second)
        other = two.lease("another endpoint", ignore)
        two.want(other)
        await eventually(lambda: other.is_held)
        assert not second.is_held
        one.give_back(first)
        assert not first.is_held
        await eventually(lambda: second.is_held)
        assert told == ["one", "one", "two"]


async def test_a_lease_is_kept_while_it_is_wanted(server_url: str) -> None:
    async with (
        replica(server_url, "one", LONG, "keep") as one,
        replica(server_url, "two", LONG, "keep") as two,
    ):
        first, second = one.lease("e", ignore), two.lease("e", ignore)
        one.want(first)
        one.want(first)
        await eventually(lambda: first.is_held)
        two.want(second)
        until_s = first.until_s
        await eventually(lambda: first.until_s > until_s + 0.2)
        assert (first.term, second.term) == (1, 0)
        async with connect(server_url) as client:
            key = f"{pool_tag('keep')}:lease:e".encode()
            assert await client.get(key) == b"one"


async def test_the_lease_of_a_replica_that_was_killed_runs_out(server_url: str) -> None:
    async with replica(server_url, "two", SHORT, "kill") as two:
        async with replica(server_url, "one", SHORT, "kill") as one:
            first, second = one.lease("e", ignore), two.lease("e", ignore)
            one.want(first)
            await eventually(lambda: first.is_held)
            two.want(second)
        await eventually(lambda: second.is_held)
        assert not first.is_held  # it never believed in it for longer than Redis did


async def test_a_replica_that_stops_leaves_its_leases_at_once(server_url: str) -> None:
    async with replica(server_url, "two", LONG, "stop") as two:
        second = two.lease("e", ignore)
        async with connect(server_url) as client, asyncio.TaskGroup() as group:
            one = Leases(client, pool="stop", replica="one", options=LONG)
            task = group.create_task(one.run())
            first = one.lease("e", ignore)
            one.want(first)
            await eventually(lambda: first.is_held)
            two.want(second)
            task.cancel()
            await asyncio.wait([task])
            await one.release()
        await eventually(lambda: second.is_held)


async def test_without_redis_every_replica_holds_what_it_wants() -> None:
    leases = Leases(None, pool="p", replica="r")
    await leases.run()
    lease = leases.lease("e", ignore)
    held = [lease.is_held]
    leases.want(lease)
    held.append(lease.is_held)
    await leases.release()
    held.append(lease.is_held)
    assert held == [False, True, False]


@pytest.mark.parametrize("how", ["shut", "stall", "babble"])
async def test_a_lease_runs_out_while_redis_is_away_and_comes_back_with_it(door: Door, how: str) -> None:
    await door.open()
    async with replica(door.url, "one", SHORT) as leases:
        lease = leases.lease("e", ignore)
        leases.want(lease)
        await eventually(lambda: lease.is_held)
        match how:
            case "shut":
                await door.shut()
            case "stall":
                await door.stall()
            case "babble":
                await door.babble(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await eventually(lambda: not lease.is_held)
        await door.open()
        await eventually(lambda: lease.is_held)
        assert lease.term >= 2


async def test_leases_of_a_pool_lie_in_one_slot_of_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        async with replica(url, "one", LONG) as one, replica(url, "two", LONG) as two:
            first = [one.lease(name, ignore) for name in "abc"]
            second = [two.lease(name, ignore) for name in "abc"]
            for lease in first:
                one.want(lease)
            await eventually(lambda: all(lease.is_held for lease in first))
            for lease in second:
                two.want(lease)
            one.give_back(first[0])
            await eventually(lambda: second[0].is_held)
            assert [lease.is_held for lease in first] == [False, True, True]
            assert [lease.is_held for lease in second] == [True, False, False]
