"""What a gateway has served is a load: written by a real gateway into a real ledger, and read back."""

import asyncio
import json
import random
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from billing import (
    KeptChain,
    LedgerPeriod,
    OpenedRequest,
    PriceBook,
    Settlement,
    SettlementState,
    Usage,
    groups_of,
    open_ledger,
)
from gateway.edge.auth import new_key
from gateway.exchange import kept_chain
from gateway.sim import SimRequest
from gateway.sim.loads.ledger import NO_CHAIN, NOT_MEASURED, OTHER_BLOCKS, LedgerLoad, LedgerRequests, ledger_loads
from gateway.types import Plan, TokenSource
from prefix_index import Chain, chain_of, pack
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import scripted_engine
from tests.gateway.sim.loads.hit_share import unlimited
from tests.hostile import Peer

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
STEP = 64
OUTPUT_TOKENS = 3


async def keeps_alive(peer: Peer) -> None:
    """Answer a completion of token ids with their number."""
    request = await peer.read_request()
    ids = json.loads(request.partition(b"\r\n\r\n")[2])["prompt"]
    usage = {
        "prompt_tokens": len(ids),
        "completion_tokens": OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    body = json.dumps({"choices": [{"index": 0, "text": "a"}], "usage": usage}).encode()
    await peer.send(
        b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )


def tree_of_prompts(rng: random.Random, count: int) -> Iterator[list[int]]:
    """Each prompt goes on where an earlier one stood at some token, or is new; some are the same again."""
    seen: list[list[int]] = [[]]
    for _ in range(count):
        before = rng.choice(seen)
        kept = before[: rng.randint(0, len(before))]
        seen.append(kept + [rng.randrange(1000) for _ in range(rng.choice([0, 1, 40, 300]))] or [1])
        yield seen[-1]


def cached_by_the_prompts_themselves(sent: Iterable[tuple[str, list[int]]]) -> Iterator[int]:
    """Tokens of each prompt that begin an earlier one of its group, in whole steps."""
    earlier: list[tuple[str, list[int]]] = []
    for group, ids in sent:
        shared = 0
        for other_group, other in earlier:
            if group == other_group:
                alike = next((n for n, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), None)
                shared = max(shared, min(len(ids), len(other)) if alike is None else alike)
        earlier.append((group, ids))
        yield shared // STEP * STEP


def period(path: Path) -> LedgerPeriod:
    return LedgerPeriod(
        (path,), NOON - timedelta(days=3650), NOON + timedelta(days=36500), NOON + timedelta(days=36500)
    )


def requests_of(load: LedgerLoad) -> list[SimRequest]:
    assert load.workload is not None
    return list(load.workload.requests)


async def test_what_was_sent_comes_back_with_its_times_lengths_and_shared_beginnings(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    made = {name: new_key() for name in ("acme", "globex")}
    keys = tmp_path / "keys.yaml"
    entries = (
        f"  - {{id: {name}, keys: [{{id: {name}-1, sha256: {digest}}}]}}\n" for name, (_, digest) in made.items()
    )
    keys.write_text("tenants:\n" + "".join(entries))
    rng = random.Random(7)
    sent = [(rng.choice(["acme", "globex"]), ids) for ids in tree_of_prompts(rng, 60)]
    async with scripted_engine(keeps_alive) as one, scripted_engine(keeps_alive) as two:
        gateway = await start(start_gateway, one.url, two.url, keys_file=keys, ledger__chain_tokens=STEP)
        for tenant, ids in sent:
            body = {"model": "m", "prompt": ids, "max_tokens": OUTPUT_TOKENS}
            headers = {"authorization": f"Bearer {made[tenant][0]}"}
            (await client.post(f"{gateway.url}/v1/completions", json=body, headers=headers)).raise_for_status()
        await settled(gateway, len(sent))
    (load,) = ledger_loads(period(gateway.ledger_path))
    assert load.workload is not None
    assert (load.model, load.workload.block_size) == ("m", STEP)
    found = requests_of(load)
    assert [(r.number, r.tenant, r.prompt_tokens, r.output_tokens) for r in found] == [
        (number, tenant, len(ids), OUTPUT_TOKENS) for number, (tenant, ids) in enumerate(sent)
    ]
    assert found[0].at_s == 0.0
    assert [r.at_s for r in found] == sorted(r.at_s for r in found)
    assert [len(r.chain) for r in found] == [len(ids) // STEP for _, ids in sent]

    expected = sum(cached_by_the_prompts_themselves(sent))
    assert expected > 0
    assert unlimited(found).hit_tokens == expected
    assert expected < sum(cached_by_the_prompts_themselves(("all", ids) for _, ids in sent)), "groups do not share"

    assert load.recorded is not None
    assert (load.recorded.requests, load.recorded.hit_share, load.recorded.ttft_p50_s) == (len(sent), 0.0, None)
    assert (load.left_out.requests, load.left_out.token_share) == ({}, 0.0)


async def test_nothing_of_a_prompt_is_kept_unless_it_is_asked_for(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url)
        body = {"model": "m", "prompt": list(range(500))}
        (await client.post(f"{gateway.url}/v1/completions", json=body)).raise_for_status()
        await settled(gateway, 1)
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        assert connection.execute("SELECT count(*) FROM chains").fetchone() == (0,)
    (load,) = ledger_loads(period(gateway.ledger_path))
    assert (load.workload, load.recorded) == (None, None)
    assert (load.left_out.requests, load.left_out.token_share) == ({NO_CHAIN: 1}, 1.0)


def plan_of(ids: list[int], block_size: int) -> Plan:
    return Plan(chain_of(pack(array("I", ids)), b"root", block_size), TokenSource.ENGINE)


@pytest.mark.parametrize(
    ("block_size", "tokens", "kept"), [(16, 256, 256), (1, 256, 256), (48, 256, 240), (256, 256, 256), (528, 256, 528)]
)
def test_chains_are_kept_in_whole_blocks_of_the_pool(block_size: int, tokens: int, kept: int) -> None:
    found = kept_chain(plan_of(list(range(1056)), block_size), tokens)
    assert found is not None
    assert found.block_tokens == kept
    assert len(found.hashes) == 1056 // kept * 8


def test_a_prompt_shorter_than_a_hash_is_known_and_one_without_tokens_is_not() -> None:
    assert kept_chain(plan_of([1, 2, 3], 16), 256) == KeptChain(256, b"")
    assert kept_chain(Plan(Chain(b"", 16, 100), None), 256) is None


@given(st.lists(st.integers(0, 1), max_size=80), st.integers(0, 80), st.sampled_from([1, 2, 4]), st.integers(4, 9))
def test_the_kept_chain_of_a_prefix_is_a_prefix_of_the_kept_chain(
    ids: list[int], cut: int, block_size: int, tokens: int
) -> None:
    whole, prefix = kept_chain(plan_of(ids, block_size), tokens), kept_chain(plan_of(ids[:cut], block_size), tokens)
    assert whole is not None
    assert prefix is not None
    assert whole.hashes.startswith(prefix.hashes)


def opened(name: str, blocks: int | None, tokens: int = 256, model: str = "m", at_s: float = 0.0) -> OpenedRequest:
    """Prompts that differ in length alone."""
    chain = None if blocks is None else KeptChain(tokens, hashes(*range(tokens, tokens * (blocks + 1), tokens)))
    at = NOON + timedelta(seconds=at_s)
    row = OpenedRequest(name, at, "acme", "acme-1", "acme", model, "/v1/chat/completions", True, None)
    return replace(row, chain=chain)


def hashes(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def ended(
    name: str,
    prompt_tokens: int | None = 1100,
    output_tokens: int = 5,
    state: SettlementState = SettlementState.COMPLETE,
) -> Settlement:
    return Settlement(
        request_id=name,
        settled_at=NOON + timedelta(seconds=60),
        state=state,
        http_status=200,
        endpoint_id="e",
        usage=Usage(prompt_tokens, None, output_tokens),
        usage_json=None,
        convention="openai",
        flags=frozenset(),
        expected_cached_tokens=None,
        ttft_s=0.1,
        duration_s=1.0,
        attempts=(),
    )


async def write(path: Path, *records: OpenedRequest | Settlement) -> None:
    async with open_ledger(path, PriceBook.empty()) as ledger:
        await asyncio.gather(
            *(ledger.open(record) if isinstance(record, OpenedRequest) else ledger.settle(record) for record in records)
        )


async def test_each_model_is_a_load_of_its_own_and_can_be_asked_for_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await write(
        path,
        opened("a", 2, model="z"),
        opened("b", 4, at_s=2, model="y"),
        opened("c", 3, at_s=3.5, model="y"),
        *map(ended, "abc"),
    )
    y, z = ledger_loads(period(path))
    assert [(load.model, len(requests_of(load))) for load in (y, z)] == [("y", 2), ("z", 1)]
    assert [r.at_s for r in requests_of(y)] == [0.0, 1.5]
    assert ledger_loads(period(path), "z") == (z,)
    assert ledger_loads(period(path), "x") == ()


async def test_finer_chains_are_read_in_the_coarser_blocks_in_which_most_requests_are(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await write(
        path,
        *(opened(f"fine {n}", 4, tokens=256, at_s=n) for n in range(2)),
        opened("coarse", 2, tokens=512, at_s=2),
        opened("odd", 4, tokens=240, at_s=3),
        *(ended(name) for name in ("fine 0", "fine 1", "coarse", "odd")),
    )
    (load,) = ledger_loads(period(path))
    assert load.workload is not None
    assert load.workload.block_size == 512
    assert [r.chain for r in requests_of(load)] == [Chain(hashes(512, 1024), 512, 1100)] * 3
    assert load.left_out.requests == {OTHER_BLOCKS: 1}
    assert (load.left_out.prompt_tokens, load.left_out.of_prompt_tokens) == (1100, 4400)
    assert load.recorded is not None
    assert load.recorded.requests == 3


async def test_of_what_cannot_be_replayed_it_is_said_how_much_it_is_and_why(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await write(
        path,
        *(opened(name, 1) for name in ("good", "failed", "rejected", "lost count")),
        opened("no chain", None),
        ended("good", 300),
        ended("failed", state=SettlementState.FAILED),
        ended("rejected", state=SettlementState.REJECTED),
        ended("lost count", None),
        ended("no chain", 100),
    )
    await write(path, opened("interrupted", 1))
    async with open_ledger(path, PriceBook.empty()):
        pass
    (load,) = ledger_loads(period(path))
    assert len(requests_of(load)) == 1
    assert load.left_out.requests == {"failed": 1, "rejected": 1, NOT_MEASURED: 1, NO_CHAIN: 1, "interrupted": 1}
    assert load.left_out.token_share == 0.25
    assert sum(load.left_out.requests.values()) + 1 == sum(group.tally.requests for group in groups_of(period(path)))


async def test_a_chain_is_never_longer_than_its_prompt_and_an_answer_never_empty(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await write(path, opened("a", 4), ended("a", prompt_tokens=600, output_tokens=0))
    (load,) = ledger_loads(period(path))
    assert requests_of(load) == [SimRequest(0, 0.0, Chain(hashes(256, 512), 256, 600), 1, tenant="acme")]


async def test_a_load_can_be_read_again_and_two_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    names = [f"{n:05d}" for n in range(3000)]  # more than a page
    await write(path, *(opened(name, 1, at_s=n) for n, name in enumerate(names)), *map(ended, names))
    (load,) = ledger_loads(period(path))
    assert load.workload is not None
    assert isinstance(load.workload.requests, LedgerRequests)
    for one, other in zip(load.workload.requests, load.workload.requests, strict=True):
        assert one == other
    assert [r.number for r in requests_of(load)] == list(range(3000))
