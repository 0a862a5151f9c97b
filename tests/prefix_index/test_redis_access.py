"""Who may reach the index: TLS with authority and certificate of one's own, users with few rights, no secret told."""

import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import cast

import pytest
from redis.exceptions import NoPermissionError

from prefix_index.embedded import EmbeddedServer
from prefix_index.errors import RedisAddressInvalid
from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_address import RedisAccess
from prefix_index.redis_clients import connect, connect_one
from prefix_index.redis_wire import pool_tag
from prefix_index.shared_index import SharedIndex
from prefix_index.types import Claim, DegradedReason, Load
from tests.prefix_index.door import Door
from tests.prefix_index.replicas import match_until, running
from tests.prefix_index.servers import Server, a_server, cluster, free_ports, watched
from tests.prefix_index.subjects import chain
from tests.until import until

TLS = Path(__file__).parents[1] / "data" / "tls"
REDIS_PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
SECRET = "p@ss/w:rd%41"
QUICK = SharedIndexOptions(deadline_s=1.0, load_interval_s=0.005, probe_every_s=0.02)


def documented_user() -> str:
    """The line of the documentation that makes a user with the rights that are needed, and no other."""
    (line,) = (
        str(found) for found in re.findall(r"^(user prefixgate .*)$", REDIS_PAGE.read_text(), flags=re.MULTILINE)
    )
    return line.replace(">PASSWORD", f">{SECRET}")


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Server]:
    """A server on which strangers may do nothing."""
    (port,) = free_ports(1)
    async with a_server(tmp_path / "locked", port) as one:
        await one.ask("ACL", "SETUSER", *documented_user().split()[1:])
        await one.ask("ACL", "SETUSER", "default", "resetpass", ">of the test")
        yield one


def speaking_tls(wants_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(TLS / "cert.pem")
    return context


@pytest.fixture
async def tls_door(server: EmbeddedServer) -> AsyncIterator[Door]:
    door = Door(server.url, speaking_tls(wants_certificate=True))
    await door.open()
    yield door
    await door.shut()


@asynccontextmanager
async def an_index(url: str, access: RedisAccess | None = None, *, shards: int = 1) -> AsyncIterator[SharedIndex]:
    options = replace(QUICK, shards=shards)
    async with (
        connect(url, access) as client,
        running(SharedIndex(client, pool="p", replica="r", options=options)) as index,
    ):
        yield index


OURS = RedisAccess(ca_file=TLS / "cert.pem", cert_file=TLS / "cert.pem", key_file=TLS / "key.pem")


async def test_a_server_with_an_authority_of_its_own_is_shown_our_certificate(tls_door: Door) -> None:
    async with an_index(tls_door.url, OURS) as index:
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
        assert index.degraded_reason is None


@pytest.mark.parametrize("access", [RedisAccess(), RedisAccess(ca_file=TLS / "cert.pem")])
async def test_a_server_nobody_vouches_for_or_that_wants_a_certificate_is_not_used(
    tls_door: Door, access: RedisAccess
) -> None:
    async with an_index(tls_door.url, access) as index:
        await until(lambda: index.degraded_reason is DegradedReason.UNREACHABLE)
        index.observe("a", chain("x"))
        assert (await index.match(chain("x"))).blocks == {"a": 1}


@pytest.mark.parametrize("access", [RedisAccess(ca_file=TLS / "none.pem"), RedisAccess(cert_file=TLS / "README.md")])
def test_files_that_are_none_are_named_at_once(access: RedisAccess) -> None:
    with pytest.raises(RedisAddressInvalid, match="files for TLS"):
        connect("rediss://h", access)


async def test_the_documented_user_may_do_all_that_the_index_does(
    locked: Server, caplog: pytest.LogCaptureFixture
) -> None:
    access = RedisAccess(username="prefixgate", password=SECRET)
    async with an_index(f"redis://127.0.0.1:{locked.port}", access) as index:
        await use_everything(index)
        assert (await index.census())[0].seats_used
        assert (await index.hottest(3)).prefixes
        assert await index.check() == []
        assert index.dropped_writes == 0
        assert index.degraded_reason is None
    async with connect_one(f"redis://127.0.0.1:{locked.port}/1", access) as client:
        key = f"{pool_tag('p')}:response:x"
        await client.set(key, b"1", nx=True, ex=60)
        assert await client.get(key) == b"1"
        lease = resources.files("prefix_index").joinpath("lua", "lease.lua").read_text()
        for ttl_ms in ("1000", "0"):
            await cast(Awaitable[object], client.eval(lease, 1, f"{pool_tag('p')}:lease:e", "r", ttl_ms))
    assert caplog.records == []


async def use_everything(index: SharedIndex) -> None:
    """Splits, joins, forgets, evictions, endings, loads, all claims."""
    index.set_capacity("small", 3)
    index.set_load("a", Load(1, 2, 3))
    for claim in Claim:
        index.observe("a", chain("xxyy"), claim)
        index.observe("b", chain("xxzz"), claim)
        index.observe("a", chain("xxyyy"), claim)
        index.forget("b", chain("xxzz"), 3, claim)
    for letter in "defg":
        index.observe("small", chain(letter * 2))
    index.observe("c", chain("xx"))
    index.clear("c")
    for number in range(600):
        index.observe(f"many{number % 40}", chain(f"x{number}"), Claim.SPECULATIVE)
    await until(lambda: not index.queued_writes)
    found = await match_until(index, "xxyyy", lambda found: found.blocks == {"a": 5, "b": 2})
    assert found.host == {"a": 5, "b": 2}


async def test_the_documented_user_may_do_nothing_else(locked: Server) -> None:
    access = RedisAccess(username="prefixgate", password=SECRET)
    async with connect_one(f"redis://127.0.0.1:{locked.port}", access) as client:
        for forbidden in (client.keys(), client.flushall(), client.config_get("dir"), client.get("other")):
            with pytest.raises(NoPermissionError):
                await forbidden


@pytest.mark.parametrize("login", ["prefixgate:wr%40ng@", ":wr%40ng@", ""])
async def test_a_wrong_password_is_unreachable_and_told_to_nobody(
    locked: Server, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with an_index(f"redis://{login}127.0.0.1:{locked.port}") as index:
            await until(lambda: index.degraded_reason)
            assert index.degraded_reason in (DegradedReason.UNREACHABLE, DegradedReason.REFUSED)
        assert "wr@ng" not in repr(connect(f"redis://{login}h"))
    assert "wr@ng" not in caplog.text
    assert "wr%40ng" not in caplog.text


async def test_a_user_without_the_right_to_load_functions_is_refused_until_an_operator_gives_it(
    locked: Server,
) -> None:
    await locked.ask("ACL", "SETUSER", "prefixgate", "-function|load")
    access = RedisAccess(username="prefixgate", password=SECRET)
    async with an_index(f"redis://127.0.0.1:{locked.port}", access) as index:
        await until(lambda: index.degraded_reason is DegradedReason.REFUSED)
        await locked.ask("ACL", "SETUSER", "prefixgate", "+function|load")
        await until(lambda: index.degraded_reason is None)


async def test_sentinels_may_have_a_password_of_their_own(tmp_path: Path) -> None:
    async with watched(tmp_path) as servers:
        for sentinel in servers.sentinels:
            await sentinel.ask("ACL", "SETUSER", "asker", "on", ">theirs", "-@all", "+sentinel|masters")
            await sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">of the test")
        for one in (servers.primary, servers.replica):
            await one.ask("ACL", "SETUSER", *documented_user().split()[1:])
        access = RedisAccess("prefixgate", SECRET, sentinel_username="asker", sentinel_password="theirs")
        async with an_index(servers.url, access) as index:
            index.observe("a", chain("xxx"))
            await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
            await until(lambda: index.degraded_reason is None)


async def told_port(node: Server) -> int:
    """Where a node of a cluster says that it is."""
    (name,) = cast(list[bytes], await node.ask("CONFIG", "GET", "cluster-announce-port"))[1:]
    return int(name)


async def test_the_nodes_of_a_cluster_are_all_spoken_to_with_tls(tmp_path: Path) -> None:
    async with cluster(tmp_path, tls=speaking_tls(wants_certificate=True)) as nodes:
        url = f"rediss+cluster://127.0.0.1:{await told_port(nodes[0])}"
        async with an_index(url, OURS, shards=8) as index:
            for letter in "abcdefgh":
                index.observe("e", chain(letter))
                await match_until(index, letter, lambda found: found.blocks == {"e": 1})
            await until(lambda: index.degraded_reason is None)


async def test_sentinels_and_primary_are_spoken_to_with_tls_before_and_after_a_failover(tmp_path: Path) -> None:
    async with (
        watched(tmp_path, speaking_tls(wants_certificate=True)) as servers,
        an_index(servers.url, OURS) as index,
    ):
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
        assert await servers.primary.ask("WAIT", 1, 5000) == 1
        servers.primary.kill()
        await until(lambda: index.degraded_reason)
        await until(lambda: index.degraded_reason is None, within_s=30)
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
