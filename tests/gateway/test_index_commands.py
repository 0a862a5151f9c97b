"""`prefixgate index` shows what a running gateway's index holds; `check --index` walks the one in Redis by itself."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from backends.reference.embedded import RunningEngine
from backends.reference.model_files import ensure_model
from gateway.admin_client import here
from gateway.cli import cli
from gateway.command_line.words import age, size
from gateway.commands.index import _feeds, _names, _totals
from gateway.config import Listen
from prefix_index import Chain, Claim, EmbeddedServer, SharedIndex, SharedIndexOptions, connect
from prefix_index.redis_wire import pool_keys
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.prefix_index.door import Door
from tests.prefix_index.servers import cluster, watched


@pytest.fixture
def gateway(engine: RunningEngine, start_gateway: StartGateway, token_file: Path) -> RunningGateway:
    running = start_gateway(
        engine.url, admin_token_file=token_file, **{f"models__{MODEL}__tokenizer": ensure_model(MODEL)}
    )
    for _ in range(2):
        body = {"model": MODEL, "messages": [{"role": "user", "content": STORY}], "max_tokens": 4, "temperature": 0}
        running.http.post("/v1/chat/completions", json=body).raise_for_status()
    return running


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def at(gateway: RunningGateway, token_file: Path, *arguments: str) -> Result:
    """An `index` command that asks this gateway."""
    return command("index", *arguments, "--gateway", gateway.url, "--token-file", str(token_file))


def row(result: Result, *words: str) -> list[str]:
    """The cells of the one line that has all these words."""
    (line,) = [line for line in result.output.splitlines() if all(word in line for word in words)]
    return [cell.strip() for cell in line.strip("│ ").split("│")]


def test_show_says_who_holds_what_and_how_far_it_can_be_relied_on(gateway: RunningGateway, token_file: Path) -> None:
    result = at(gateway, token_file, "show")
    assert result.exit_code == 0, result.output
    holder, claim, now, blocks, capacity, *_ = row(result, "e0@", "confirmed")
    assert (claim, now, capacity) == ("confirmed", "yes", "400")
    assert int(blocks) > 0
    assert row(result, "in redis")[2] == blocks
    assert row(result, "receipts")[:2] == ["e0", "receipts"]
    assert "0 were dropped" in result.output
    assert "caravan" not in result.output
    report = json.loads(at(gateway, token_file, "show", "--json").output)
    assert [one["holder"] for one in report["holders"] if one["claim"] == "confirmed"] == [holder]


def test_top_shows_the_heaviest_prefixes_by_hash(gateway: RunningGateway, token_file: Path) -> None:
    result = at(gateway, token_file, "top", "--top", "1", "--max-nodes", "100")
    assert result.exit_code == 0, result.output
    name, weight, tokens, ends_at, prompts, *_, holders = row(result, "e0@")
    assert len(bytes.fromhex(name)) == 8
    assert (weight, tokens, prompts) == (ends_at, ends_at, "1")
    assert int(tokens.replace(",", "")) % 16 == 0
    assert holders.startswith("e0@")
    assert result.output.splitlines()[-1].endswith((" node read", " nodes read"))
    assert json.loads(at(gateway, token_file, "top", "--json").output)["prefixes"][0]["hash"] == name


def test_clear_ends_what_the_index_says_and_shows_what_that_was(gateway: RunningGateway, token_file: Path) -> None:
    cleared = at(gateway, token_file, "clear", "--endpoint", "e0")
    assert cleared.exit_code == 0, cleared.output
    assert row(cleared, "confirmed")[0].startswith("e0@")
    holder = row(cleared, "confirmed")[0]
    again = json.loads(at(gateway, token_file, "clear", "--holder", holder, "--json").output)
    assert again["holders"] == [holder]
    by_name = at(gateway, token_file, "clear", "--holder", holder)
    assert row(by_name, holder)[0] == holder


def test_the_token_may_come_from_the_configuration(gateway: RunningGateway, token_file: Path) -> None:
    config = token_file.with_name("c.yaml")
    config.write_text(f"admin_token_file: {token_file}\n")
    assert command("index", "show", "--gateway", gateway.url + "/", "-c", str(config)).exit_code == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_address_may_come_from_the_configuration_too(host: str, gateway: RunningGateway, token_file: Path) -> None:
    config = token_file.with_name("c.yaml")
    port = gateway.url.rpartition(":")[2]
    config.write_text(f"admin_token_file: {token_file}\nlisten: {{host: {host}, port: {port}}}\n")
    shown = command("index", "show", "-c", str(config), "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["store"] == "redis"


def test_addresses_of_all_kinds_are_made_into_urls(token_file: Path) -> None:
    hosts = ("127.0.0.1", "::", "fe80::1", "gpu-a")
    assert [here(Listen(host=host, port=81)) for host in hosts] == [
        *("http://127.0.0.1:81", "http://[::1]:81", "http://[fe80::1]:81", "http://gpu-a:81"),
    ]
    config = token_file.with_name("c.yaml")
    config.write_text(f"admin_token_file: {token_file}\nlisten: {{port: 0}}\n")
    free = command("index", "top", "-c", str(config))
    assert (free.exit_code, "give --gateway URL" in free.output) == (2, True)


async def test_show_says_what_it_can_while_redis_is_away(start_gateway: StartGateway, token_file: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as scripted, EmbeddedServer() as server:
        running = await asyncio.to_thread(
            start_gateway, scripted.url, admin_token_file=token_file, index__redis_url=server.url
        )
        await server.stop()
        result = await asyncio.to_thread(at, running, token_file, "show")
        as_json = await asyncio.to_thread(at, running, token_file, "show", "--json")
    assert result.exit_code == as_json.exit_code == 1
    assert row(result, "not read") == ["not read", *"-------"]
    assert "writes wait" in result.output
    assert "the index could not be read: " in result.stderr
    assert json.loads(as_json.stdout)["store"] is None


def test_a_gateway_that_cannot_be_asked_is_said_to_be_so(gateway: RunningGateway, token_file: Path) -> None:
    other = token_file.with_name("other")
    other.write_text("letmeout")
    wrong = at(gateway, other, "show")
    assert (wrong.exit_code, "has another admin token" in wrong.output) == (2, True)
    unknown = at(gateway, token_file, "clear", "--endpoint", "nobody")
    assert (unknown.exit_code, "no endpoint 'nobody'" in unknown.output) == (1, True)
    away = command("index", "show", "--gateway", "http://127.0.0.1:9", "--token-file", str(token_file))
    assert (away.exit_code, "no answer from http://127.0.0.1:9" in away.output) == (1, True)
    nonsense = command("index", "show", "--gateway", "nonsense", "--token-file", str(token_file))
    assert nonsense.exit_code == 1


def test_a_gateway_without_an_admin_api_is_told_from_one_that_is_away(
    engine: RunningEngine, start_gateway: StartGateway, token_file: Path
) -> None:
    without = start_gateway(engine.url, index__embedded=False)
    result = at(without, token_file, "top")
    assert result.exit_code == 1
    assert "there is no admin API" in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show"], "no admin token"),
        (["show", "--token-file", "gone"], "cannot read the secret at gone"),
        (["show", "-c", "gone.yaml"], "gone.yaml"),
        (["top", "--top", "1001"], "--top"),
        (["top", "--max-nodes", "0"], "--max-nodes"),
        (["clear"], "either --endpoint or --holder"),
        (["clear", "--endpoint", "a", "--holder", "a@1"], "either --endpoint or --holder"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    result = command("index", *arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_ages_and_sizes_are_in_units_of_their_own() -> None:
    assert [age(seconds) for seconds in (None, 0.25, 119, 120, 7_200, 172_800)] == [
        *("-", "0.2 s", "119.0 s", "2 min", "2 h", "2 d"),
    ]
    assert [size(count) for count in (0, 2_047, 3 << 20, 5 << 50)] == ["0 B", "2.0 KiB", "3.0 MiB", "5120.0 TiB"]


def test_of_many_holders_a_few_are_named() -> None:
    assert _names({"holders": ["a@1", "b@1"], "holder_count": 2}) == "a@1 b@1"
    assert _names({"holders": list("abcdefg"), "holder_count": 300}) == "a b c d and 296 more"


def test_shards_and_feeds_are_shown_in_tables_of_their_own() -> None:
    sizes = {"nodes": 1, "blocks": 2, "estimated_bytes": 3, "seats_used": 4, "seats_free": 5, "seats_ending": 6}
    report = {
        "store": "redis",
        "degraded": "timeout",
        "queued_writes": 7,
        "dropped_writes": 8,
        "stand_in_matches": 9,
        "max_bytes": 4096,
        "total": sizes,
        "shards": [sizes, sizes],
    }
    assert printed(_totals(report), "shard 1")[:5] == ["shard 1", "1", "2", "3 B", "2.0 KiB"]
    assert printed(_totals(report), "in redis")[4] == "4.0 KiB"
    assert "Redis is not in use now: timeout" in str(_totals(report).caption)
    feed = {
        "endpoint_id": "e0",
        "rank": 1,
        "source": "tcp://[::1]:5557",
        "state": "away",
        "why": "nobody [at all]",
        "counts": {"batches": 3, "gaps": 0},
        "blocks": None,
        "lag_s": 0.5,
    }
    assert printed(_feeds([feed]), "away") == [
        *("e0", "1", "tcp://[::1]:5557", "away", "-", "3", "0", "0.5 s", "nobody [at all]"),
    ]


def printed(table: Table, word: str) -> list[str]:
    """The cells of the line with this word."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    (line,) = [line for line in console.export_text().splitlines() if word in line and "│" in line]
    return [cell.strip() for cell in line.strip("│ ").split("│")]


# check --index


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as running:
        yield running


async def filled(url: str, shards: int = 1) -> None:
    """An index with a few holders, at this URL."""
    async with connect(url) as redis:
        index = SharedIndex(redis, pool="default", replica="r", options=SharedIndexOptions(shards=shards))
        for first in range(6):
            for claim in Claim:
                index.observe(f"e{first % 2}@1", Chain(bytes(range(first, first + 80)), 16, 160), claim)
        await index.drain(5.0)


async def check(url: str, *, shards: int = 1) -> Result:
    flags = {"PREFIXGATE_INDEX__REDIS_URL": url, "PREFIXGATE_INDEX__SHARDS": str(shards)}
    return await asyncio.to_thread(CliRunner().invoke, cli, ["check", "--index"], env=flags)


async def test_check_walks_the_whole_index_without_a_gateway(server: EmbeddedServer) -> None:
    empty = await check(server.url)
    assert (empty.exit_code, "pool default, 1 shard: 0 nodes" in empty.output) == (0, True)
    await filled(server.url)
    sound = await check(server.url)
    assert sound.exit_code == 0, sound.output
    assert "6 nodes of 60 blocks, 8 claims" in sound.output
    assert sound.output.splitlines()[-1] == "sound: no broken invariant"


async def test_check_names_what_is_broken_and_fails(server: EmbeddedServer) -> None:
    await filled(server.url)
    nodes, order, *_ = (key.decode() for key in pool_keys("default"))
    async with Redis.from_url(server.url) as client:
        name = next(iter(await client.hkeys(nodes)))
        await client.hdel(nodes, name)
        await client.persist(order)
    result = await check(server.url)
    assert result.exit_code == 1
    assert "broken: slot 0 keeps in order a node it does not hold" in result.output
    assert "has no time to live" in result.output
    assert result.output.splitlines()[-1].endswith("broken invariants")


async def test_what_is_no_index_of_ours_is_said_to_be_none(server: EmbeddedServer) -> None:
    nodes, _, _, _, who, *_ = (key.decode() for key in pool_keys("default"))
    async with Redis.from_url(server.url) as client:
        await client.hset(nodes, "short", "x")
        await client.hset(who, "0", "1:cA")
    result = await check(server.url)
    assert result.exit_code == 1
    assert "is not of this layout" in result.output


async def test_check_of_an_index_that_is_away_or_not_configured_fails_with_a_word() -> None:
    away = await check("redis://127.0.0.1:9")
    assert (away.exit_code, "unavailable" in away.output) == (1, True)
    private = await asyncio.to_thread(command, "check", "--index")
    assert (private.exit_code, "there is no index.redis_url" in private.output) == (2, True)


async def test_check_asks_whether_a_server_that_never_shakes_hands_speaks_tls(server: EmbeddedServer) -> None:
    door = Door(server.url)
    await door.stall()
    result = await check(f"rediss://127.0.0.1:{door.port}")
    await door.shut()
    assert result.exit_code == 1
    assert result.output.strip().endswith("(does it speak TLS?)")


async def test_check_walks_the_shards_of_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        await filled(url, shards=3)
        result = await check(url, shards=3)
    assert result.exit_code == 0, result.output
    assert "3 shards: 6 nodes of 60 blocks" in result.output


async def test_check_asks_the_primary_that_sentinels_name(tmp_path: Path) -> None:
    async with watched(tmp_path) as servers:
        await filled(servers.url)
        result = await check(servers.url)
    assert result.exit_code == 0, result.output
    assert "6 nodes of 60 blocks" in result.output
