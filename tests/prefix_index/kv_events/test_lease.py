"""Leases on a real server: one replica holds each, and another one has it once that one is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from prefix_index.kv_events.lease import LeaseOptions, Leases
from prefix_index.redis_address import Place
from prefix_index.redis_clients import connect
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_wire import pool_tag
from tests.prefix_index.door import Door
from tests.prefix_index.servers import cluster
from tests.until import until

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
        await until(lambda: first.is_held)
        two.want(second)
        other = two.lease("another endpoint", ignore)
        two.want(other)
        await until(lambda: other.is_held)
        assert not second.is_held
        one.give_back(first)
        assert not first.is_held
        await until(lambda: second.is_held)
        assert told == ["one", "one", "two"]


async def test_a_lease_is_kept_while_it_is_wanted(server_url: str) -> None:
    async with (
        replica(server_url, "one", LONG, "keep") as one,
        replica(server_url, "two", LONG, "keep") as two,
    ):
        first, second = one.lease("e", ignore), two.lease("e", ignore)
        one.want(first)
        one.want(first)
        await until(lambda: first.is_held)
        two.want(second)
        until_s = first.until_s
        await until(lambda: first.until_s > until_s + 0.2)
        assert (first.term, second.term) == (1, 0)
        async with connect(server_url) as client:
            key = f"{pool_tag('keep')}:lease:e".encode()
            assert await client.get(key) == b"one"


async def test_the_lease_of_a_replica_that_was_killed_runs_out(server_url: str) -> None:
    async with replica(server_url, "two", SHORT, "kill") as two:
        async with replica(server_url, "one", SHORT, "kill") as one:
            first, second = one.lease("e", ignore), two.lease("e", ignore)
            one.want(first)
            await until(lambda: first.is_held)
            two.want(second)
        await until(lambda: second.is_held)
        assert not first.is_held  # it never believed in it for longer than Redis did


async def test_a_replica_that_stops_leaves_its_leases_at_once(server_url: str) -> None:
    async with replica(server_url, "two", LONG, "stop") as two:
        second = two.lease("e", ignore)
        async with connect(server_url) as client, asyncio.TaskGroup() as group:
            one = Leases(client, pool="stop", replica="one", options=LONG)
            task = group.create_task(one.run())
            first = one.lease("e", ignore)
            one.want(first)
            await until(lambda: first.is_held)
            two.want(second)
            task.cancel()
            await asyncio.wait([task])
            await one.release()
        await until(lambda: second.is_held)


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
        await until(lambda: lease.is_held)
        match how:
            case "shut":
                await door.shut()
            case "stall":
                await door.stall()
            case "babble":
                await door.babble(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await until(lambda: not lease.is_held)
        await door.open()
        await until(lambda: lease.is_held)
        assert lease.term >= 2


async def test_leases_of_a_pool_lie_in_one_slot_of_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        async with replica(url, "one", LONG) as one, replica(url, "two", LONG) as two:
            first = [one.lease(name, ignore) for name in "abc"]
            second = [two.lease(name, ignore) for name in "abc"]
            for lease in first:
                one.want(lease)
            await until(lambda: all(lease.is_held for lease in first))
            for lease in second:
                two.want(lease)
            one.give_back(first[0])
            await until(lambda: second[0].is_held)
            assert [lease.is_held for lease in first] == [False, True, True]
            assert [lease.is_held for lease in second] == [True, False, False]


class Node:
    """A node of a cluster that answers by script."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked_for_slots = 0

    async def execute_command(self, *_command: str) -> object:
        self.asked_for_slots += 1
        return [[0, 16383, [b"here", 1]]]

    async def eval(self, *_arguments: object) -> object:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("answers", "is_held", "asked_for_slots"),
    [
        ([redis_errors.MovedError("1 there:1"), [1]], True, 1),
        ([redis_errors.MovedError("1 there:1")], False, 1),
        ([redis_errors.ConnectionError("gone"), [1]], True, 2),
        ([b"OK"], False, 1),
    ],
)
async def test_a_lease_follows_a_pool_that_moves(answers: list[object], is_held: bool, asked_for_slots: int) -> None:
    node = Node(*answers)
    client = ClusterClient([Place("here", 1)], lambda _: cast(Redis, node))
    async with client, asyncio.TaskGroup() as group:
        leases = Leases(client, pool="p", replica="r", options=LONG)
        lease = leases.lease("e", ignore)
        leases.want(lease)
        task = group.create_task(leases.run())
        if is_held:
            await until(lambda: lease.is_held)
        else:
            await until(lambda: len(node.answers) == 1 and node.asked_for_slots)
        assert (lease.is_held, node.asked_for_slots) == (is_held, asked_for_slots)
        task.cancel()


async def test_a_node_of_a_cluster_that_is_taken_for_a_server_gives_no_lease() -> None:
    node = Node(redis_errors.MovedError("1 there:1"), [1])
    leases = Leases(cast(Redis, node), pool="p", replica="r", options=LONG)
    lease = leases.lease("e", ignore)
    leases.want(lease)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leases.run())
        await until(lambda: len(node.answers) == 1)
        assert not lease.is_held
        await until(lambda: lease.is_held)
        task.cancel()


async def test_what_is_not_held_cannot_be_given_back() -> None:
    leases = Leases(None, pool="p", replica="r")
    mine, stranger = leases.lease("e", ignore), leases.lease("e", ignore)
    leases.want(mine)
    leases.give_back(stranger)
    assert mine.is_held
    assert mine.term == 1


async def test_a_reply_for_a_lease_that_was_given_back_meanwhile_is_nothing(server_url: str) -> None:
    async with connect(server_url) as client:
        leases = Leases(client, pool="meanwhile", replica="r", options=LONG)
        lease = leases.lease("e", ignore)
        leases.want(lease)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(leases.run())
            await asyncio.sleep(0)
            leases.give_back(lease)
            other = leases.lease("other", ignore)
            leases.want(other)
            await until(lambda: other.is_held)
            task.cancel()
        assert lease.term == 0
