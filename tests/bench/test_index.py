"""The benchmark of the index: its data, its designs, what it puts on the wire, and what it says."""

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from bench import index, index_variants
from bench.index import goals_of
from bench.index_data import HASH_BYTES, QUERY_TURN_BLOCKS, Shape, Turn, Workload, holder_name, stranger
from bench.index_designs import DESIGNS, leading_runs
from bench.index_in_process import OurRadix, measure, spread_us
from bench.index_measure import Disagreement, Pace, measure_design
from bench.index_server import pinned_server
from bench.index_tables import cost_table, memory_table
from bench.index_variants import VARIANTS, measure_variants
from bench.index_wire import RawConnection, Tap, answered_in, commands_in, encode, longest_wait_s
from bench.peer import PeerNotInstalled
from prefix_index import EmbeddedServer

SHAPE = Shape(holders=5, blocks=6_000, sizes=(128, 512))
PACE = Pace(seconds=0.02, new_chains=1)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(SHAPE)


@pytest.fixture(scope="module")
def answers(workload: Workload) -> Mapping[int, list[dict[str, int]]]:
    """By the plainest means: what each holder was sent, block by block."""
    held: dict[str, set[bytes]] = {}
    for turn in workload.turns():
        held.setdefault(turn.holder, set()).update(blocks_of(turn.chain))
    return {
        size: [
            {holder: run for holder, blocks in held.items() if (run := run_of(query.chain, blocks))}
            for query in queries
        ]
        for size, queries in workload.queries.items()
    }


def blocks_of(chain: bytes) -> list[bytes]:
    return [chain[at : at + HASH_BYTES] for at in range(0, len(chain), HASH_BYTES)]


def run_of(chain: bytes, held: set[bytes]) -> int:
    blocks = blocks_of(chain)
    return next((at for at, block in enumerate(blocks) if block not in held), len(blocks))


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as server:
        yield server


def test_the_same_shape_gives_the_same_turns(workload: Workload) -> None:
    again = Workload(SHAPE)
    assert list(workload.turns()) == list(again.turns())
    assert workload.queries == again.queries
    assert list(Workload(Shape(5, 6_000, (128, 512), seed=2)).turns()) != list(again.turns())


def test_a_turn_says_how_much_of_it_its_holder_had_before(workload: Workload) -> None:
    held: dict[str, set[bytes]] = {}
    for turn in workload.turns():
        mine = held.setdefault(turn.holder, set())
        assert run_of(turn.chain, mine) == turn.known
        mine.update(blocks_of(turn.chain))
    assert sum(map(len, held.values())) == workload.held_blocks
    assert len(set.union(*held.values())) == workload.stored_blocks >= SHAPE.blocks


def test_queries_are_conversations_with_a_turn_that_nobody_has(
    workload: Workload, answers: Mapping[int, list[dict[str, int]]]
) -> None:
    for size, queries in workload.queries.items():
        assert queries
        for query, runs in zip(queries, answers[size], strict=True):
            assert len(query) == size
            assert max(runs.values()) <= size - QUERY_TURN_BLOCKS
    shared = [len(runs) for runs in answers[128]]
    assert max(shared) > 1, "system prompts are shared"


@pytest.mark.parametrize("name", DESIGNS)
async def test_all_designs_agree_with_the_plainest_index(
    name: str, workload: Workload, answers: Mapping[int, list[dict[str, int]]]
) -> None:
    rows = await measure_design(name, workload, answers, PACE)
    memory, *sizes = rows
    assert memory["stored_blocks"] == workload.stored_blocks
    assert [row["size"] for row in sizes] == [128, 512]
    for row in sizes:
        for part in ("match", "turn", "new"):
            figures = row[part]
            assert isinstance(figures, dict)
            assert figures["command_us"] > 0
            assert figures["cpu_us"] > 0


async def test_a_design_that_answers_otherwise_is_not_measured(
    workload: Workload, answers: Mapping[int, list[dict[str, int]]]
) -> None:
    wrong = {**answers, 512: [{**runs, holder_name(99): 1} for runs in answers[512]]}
    with pytest.raises(Disagreement, match=r"512 blocks: 1 of \d+ holders have another run"):
        await measure_design("radix (ours)", workload, wrong, PACE)


@pytest.mark.parametrize("name", DESIGNS)
async def test_a_turn_is_known_after_it_was_observed(name: str, server: EmbeddedServer) -> None:
    design = DESIGNS[name](server.url)
    await design.prepare()
    chain = stranger(100, 1)
    await design.observe(Turn("a", chain[: 40 * HASH_BYTES], 0))
    await design.observe(Turn("a", chain[: 60 * HASH_BYTES], 40))
    await design.observe(Turn("b", chain[: 41 * HASH_BYTES], 0))
    assert dict(await design.match(chain)) == {"a": 60, "b": 41}
    assert dict(await design.match(chain[: 50 * HASH_BYTES])) == {"a": 50, "b": 41}
    assert dict(await design.match(stranger(100, 2))) == {}
    await design.close()


def test_leading_runs_are_those_without_a_gap() -> None:
    rng = random.Random(5)
    for _ in range(300):
        rows = [[holder for holder in (b"a", b"b", b"c") if rng.random() < 0.8] for _ in range(rng.randrange(8))]
        plain = {
            holder.decode(): run
            for holder in (b"a", b"b", b"c")
            if (run := next((at for at, row in enumerate(rows) if holder not in row), len(rows)))
        }
        assert leading_runs(rows) == plain


def test_in_process_our_index_agrees_and_is_measured(
    workload: Workload, answers: Mapping[int, list[dict[str, int]]]
) -> None:
    found = measure(OurRadix(), workload)
    assert found["answers"] == answers
    assert found["stored_blocks"] == workload.stored_blocks


def test_spreads_are_in_microseconds() -> None:
    assert spread_us([1e-6, 2e-6, 3e-6]) == {"mean": 2.0, "p50": 2.0, "p99": 3.0}


async def test_what_a_client_sends_can_be_sent_again_without_it(server: EmbeddedServer) -> None:
    async with Tap(server.url) as tap:
        design = DESIGNS["key per block"](tap.url)
        await design.match(stranger(3, 1))
        asked = await tap.record(lambda: design.match(stranger(3, 1)))
        told = await tap.record(lambda: design.observe(Turn("a", stranger(3, 1), 1)))
        await design.close()
    assert (commands_in(asked), commands_in(told)) == ({"hkeys": 3}, {"hset": 2})
    with RawConnection(server.url) as connection:
        assert connection.ask(asked) == b"*0\r\n*1\r\n$1\r\na\r\n*1\r\n$1\r\na\r\n"
        assert connection.ask(encode(b"DEL", b"no such key")) == b":0\r\n"


async def test_rates_and_waits_are_counted_on_the_wire(server: EmbeddedServer) -> None:
    rate = answered_in(server.url, [encode(b"PING"), encode(b"ECHO", b"x" * 1_000_000)], 4, 0.02)
    assert rate.answered >= 4
    assert rate.seconds >= 0.02
    assert rate.per_s == rate.answered / rate.seconds
    assert longest_wait_s(server.url, encode(b"DEBUG", b"SLEEP", b"0") * 3) > 0


async def test_a_server_tells_what_it_did_and_what_it_holds() -> None:
    async with pinned_server() as server:
        before, memory = await server.counters(), await server.memory()
        await server.watch_calls()
        with RawConnection(server.url) as connection:
            connection.ask(encode(b"SET", b"key", bytes(1_000_000)) + encode(b"EVAL", BUSY, b"0"))
        command_us, cpu_us = (await server.counters()).since(before, ["eval"])
        assert command_us > 0
        assert cpu_us > 0
        assert (await server.memory()).used_bytes - memory.used_bytes > 1_000_000
        assert await server.longest_call_us() >= 100


BUSY = b"local x = 0 for i = 1, 1000000 do x = x + i end return x"


async def test_each_way_to_write_a_block_is_weighed() -> None:
    rows = await measure_variants(2_000)
    assert [row["variant"] for row in rows] == list(VARIANTS)
    weights = [float(str(row["used_bytes_per_block"])) for row in rows]
    assert min(weights) > HASH_BYTES
    assert weights[1] > weights[0] < weights[2]


def a_row(design: str, holders: int, **figures: object) -> dict[str, object]:
    return {"where": "server", "design": design, "holders": holders, **figures}


def test_goals_hold_the_worse_number_of_holders_against_the_promise() -> None:
    rows = [
        row
        for holders, (theirs_us, ours_us, theirs_bytes, ours_bytes, per_s) in {
            8: (1_000, 50, 90, 10, 20_000.0),
            500: (900, 100, 90, 12, 9_999.0),
        }.items()
        for row in (
            a_row("key per block", holders, used_bytes_per_block=theirs_bytes),
            a_row("key per block", holders, size=2_048, match={"command_us": theirs_us}),
            a_row("radix (ours)", holders, used_bytes_per_block=ours_bytes),
            a_row("radix (ours)", holders, size=2_048, match={"command_us": ours_us}),
            a_row("radix (ours)", holders, size=512, match={"server_per_s": per_s}),
        )
    ]
    goals = goals_of(rows)
    assert [(goal.value, goal.met) for goal in goals] == [(9.0, False), (7.5, False), (9_999.0, False)]
    with pytest.raises(LookupError, match="512 blocks"):
        goals_of(rows[:-1])


def not_installed() -> Path:
    raise PeerNotInstalled("no such version")


def test_the_command_prints_what_it_wrote_and_goes_on_without_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_process: dict[str, Callable[[], Path]] = {"radix": index.IN_PROCESS["radix"], "dynamo": not_installed}
    monkeypatch.setattr(index, "IN_PROCESS", in_process)
    monkeypatch.setattr(index, "BLOCKS", 200_000)
    monkeypatch.setattr(index, "HOLDERS", (3,))
    monkeypatch.setattr(index, "SIZES", (128, 512, 2_048))
    monkeypatch.setattr(index, "SAMPLE_BLOCKS", 1_000)
    assert index.main(["--quick", "--to", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    written = json.loads((tmp_path / "index.json").read_text())
    assert json.loads(printed.out) == written
    assert {"where": "process", "design": "dynamo", "holders": 3, "missing": "no such version"} in written["rows"]
    assert "server time of a match, key per block / ours, 2,048 blocks" in printed.err
    assert index_variants.SAMPLE_BLOCKS == 200_000


def test_tables_have_a_line_for_each_row() -> None:
    rows = [
        a_row("radix (ours)", 8, used_bytes_per_block=9.5, stored_blocks=100),
        a_row("radix (ours)", 8, size=128, match={"command_us": 12.0}),
        {"where": "process", "design": "radix", "holders": 8, "size": 128, "match_us": {"p50": 1.0}},
        {"where": "process", "design": "dynamo", "holders": 8, "missing": "not there"},
    ]
    assert (cost_table(rows).row_count, memory_table(rows).row_count) == (2, 1)
