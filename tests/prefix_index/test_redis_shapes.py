"""The shared index on a cluster and behind sentinels: keys that move, primaries that die, nothing restarted."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.crc import key_slot

from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_check import check_pool
from prefix_index.redis_clients import RedisClient, connect, primary_of
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_wire import pool_keys
from prefix_index.shared_index import SharedIndex
from tests.prefix_index.door import Door
from tests.prefix_index.replicas import match_until, running
from tests.prefix_index.servers import SERVICE, Server, cluster, until_answered, watched
from tests.prefix_index.subjects import chain
from tests.until import until

OPTIONS = SharedIndexOptions(deadline_s=1.0, write_deadline_s=2.0, load_interval_s=0.005, probe_every_s=0.05)
LIVES_ON_THE_FIRST_NODE = next(f"pool {n}" for n in range(100) if key_slot(pool_keys(f"pool {n}")[0]) < 5461)


def an_index(client: RedisClient, name: str, pool: str = LIVES_ON_THE_FIRST_NODE) -> SharedIndex:
    return SharedIndex(client, pool=pool, replica=name, options=OPTIONS)


def url_of(nodes: list[Server]) -> str:
    return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}"


async def in_use(index: SharedIndex) -> None:
    await until(lambda: index.degraded_reason is None and not index.queued_writes, within_s=30)


async def test_on_a_cluster_replicas_see_each_other_whichever_node_they_know(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, connect(url_of(nodes[:1])) as c1, connect(url_of(nodes[1:])) as c2:
        for number in range(3):
            async with (
                running(an_index(c1, "r1", f"p{number}")) as one,
                running(an_index(c2, "r2", f"p{number}")) as two,
            ):
                one.observe("a", chain("xxx"))
                two.observe("b", chain("xx"))
                for index in (one, two):
                    await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 2})
                    assert index.degraded_reason is None
                node = await primary_of(c1, pool_keys(f"p{number}")[0])
                assert await check_pool(node, f"p{number}") == []


async def test_on_a_cluster_each_shard_has_a_slot_of_its_own_and_a_match_asks_one(tmp_path: Path) -> None:
    options = SharedIndexOptions(deadline_s=1.0, load_interval_s=0.005, shards=4)
    async with cluster(tmp_path) as nodes, connect(url_of(nodes)) as client:
        async with running(SharedIndex(client, pool="p", replica="r", options=options)) as index:
            for letter in "abcdefgh":
                index.observe("e", chain(letter * 3))
            for letter in "abcdefgh":
                await match_until(index, letter * 3, lambda found: found.blocks == {"e": 3})
            index.clear("e")
            for letter in "abcdefgh":
                await match_until(index, letter * 3, lambda found: found.blocks == {})
            assert index.stand_in_matches == 0
        assert len({key_slot(pool_keys(f"p:{shard}")[0]) for shard in range(4)}) == 4


async def test_on_a_cluster_a_pool_may_move_to_another_node(tmp_path: Path) -> None:
    pool, keys = LIVES_ON_THE_FIRST_NODE, pool_keys(LIVES_ON_THE_FIRST_NODE)
    async with cluster(tmp_path) as nodes, connect(url_of(nodes)) as client:
        assert isinstance(client, ClusterClient)
        async with running(an_index(client, "r")) as index:
            index.observe("a", chain("xxx"))
            await match_until(index, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
            assert await client.set(keys[0] + b"response", b"1")
            await move(key_slot(keys[0]), nodes[0], nodes[1])
            await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
            index.observe("b", chain("x"))
            await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 1})
            await in_use(index)
            assert await client.get(keys[0] + b"response") == b"1"
            assert await check_pool(nodes[1].client, pool) == []


async def move(slot: int, source: Server, target: Server) -> None:
    """What an operator's resharding does."""
    ids = [cast(bytes, await node.ask("CLUSTER", "MYID")) for node in (source, target)]
    await target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    await source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    while keys := await source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        assert isinstance(keys, list)
        await source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for node in (target, source):
        await node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])


async def test_redis_down_on_a_cluster_is_taken_over_by_the_replica_with_its_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        cluster(tmp_path, replicas=1) as nodes,
        connect(url_of(nodes)) as client,
        running(an_index(client, "r")) as index,
    ):
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
        assert await nodes[0].ask("WAIT", 1, 5000) == 1
        nodes[0].kill()
        await until(lambda: "Redis is not in use" in caplog.text)  # it may be back before anybody looks
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        await in_use(index)
        index.observe("b", chain("xx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 2})
        assert await check_pool(nodes[3].client, LIVES_ON_THE_FIRST_NODE) == []


async def test_redis_down_behind_sentinels_is_taken_over_by_the_replica_with_its_index(tmp_path: Path) -> None:
    async with (
        watched(tmp_path) as servers,
        connect(servers.url) as client,
        connect(servers.url) as other,
        running(an_index(client, "r1")) as index,
        running(an_index(other, "r2")) as second,
    ):
        index.observe("a", chain("xxx"))
        await match_until(second, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
        assert await servers.primary.ask("WAIT", 1, 5000) == 1
        servers.primary.kill()
        await until(lambda: index.degraded_reason)
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        await in_use(index)
        await in_use(second)
        second.observe("b", chain("xx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 2})
        assert await check_pool(servers.replica.client, LIVES_ON_THE_FIRST_NODE) == []


async def test_a_primary_that_sentinels_depose_is_left(tmp_path: Path) -> None:
    async with (
        watched(tmp_path) as servers,
        connect(servers.url) as client,
        running(an_index(client, "r")) as index,
    ):
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
        await servers.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
        await until_answered(servers.replica.client.role, lambda role: isinstance(role, list) and role[0] == b"master")

        async def the_new_one_is_written_to() -> bool:
            index.observe("b", chain("xx"))  # the old one takes writes until it is told, and loses them
            registry = await servers.replica.ask("HGETALL", pool_keys(LIVES_ON_THE_FIRST_NODE)[3])
            return "h:b" in str(registry)

        await until_answered(the_new_one_is_written_to, bool)
        await in_use(index)
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 2})


async def test_a_sentinel_that_is_silent_or_dead_is_passed_over(tmp_path: Path) -> None:
    async with watched(tmp_path) as servers:
        silent = Door("")
        await silent.stall()
        servers.sentinels[0].kill()
        url = servers.url.replace("://", f"://127.0.0.1:{silent.port},")
        async with connect(url) as client, running(an_index(client, "r")) as index:
            index.observe("a", chain("xxx"))
            await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
            await in_use(index)
            known = cast(SentinelConnectionPool, cast(Redis, client).connection_pool).sentinel_manager
            found = await asyncio.gather(*(known.discover_master(SERVICE) for _ in range(10)))
            assert found == [("127.0.0.1", servers.primary.port)] * 10
            assert len({id(sentinel) for sentinel in known.sentinels}) == 4, "all of them are still known"
        await silent.shut()
