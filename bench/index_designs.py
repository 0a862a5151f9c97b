"""The three designs on a server, behind one face: which holder has how much of a chain.

KeyPerBlock   a hash for each block, a field for each holder; a match asks for all blocks in one pipeline
FlatSearch    a bitmap for each block; a function on the server searches them
Radix         ours: `RedisRadix`, a few nodes for each conversation

KeyPerBlock is what llm-d's and kthena's routers do with Redis. Names and values are llm-d's, which are the shorter:
the key is the hash in decimal, the field `address@tier`, the value empty. Left out, in its favour: llm-d's second key
for each block (from the engine's hash to its own), kthena's prefix of some 60 bytes, its values and times to live.
"""

import struct
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, cast

from redis.asyncio import Redis

from bench.index_data import HASH_BYTES, Turn
from bench.index_wire import RawConnection, encode
from prefix_index import Chain, connect
from prefix_index.redis_radix import RedisRadix

_FLAT_CODE = "#!lua name=bench_flat\n" + (Path(__file__).parent / "index_flat.lua").read_text(encoding="utf-8")
_CALLS_AT_A_TIME = 64
_WRITES_AT_A_TIME = 4_096
_TOKENS_PER_BLOCK = 16


class Design(Protocol):
    """One way to keep the index on a server, through a client of its own."""

    async def prepare(self) -> None:
        """What has to be there before anything else."""

    async def match(self, chain: bytes) -> Mapping[str, int]:
        """Leading run of each holder that has one, in blocks."""

    async def observe(self, turn: Turn) -> None:
        """The holder has all of the chain."""

    async def load(self, turns: Iterable[Turn]) -> None:
        """Observe all turns, as fast as can be done."""

    async def close(self) -> None:
        """Close the client."""


class KeyPerBlock:
    """A key for each block, all of them asked for."""

    def __init__(self, url: str) -> None:
        self._url, self._client = url, Redis.from_url(url)

    async def prepare(self) -> None:
        """Nothing."""

    async def match(self, chain: bytes) -> Mapping[str, int]:
        """One pipeline; the runs are computed here, up to the first block that nobody has."""
        pipeline = self._client.pipeline(transaction=False)
        for key in block_keys(chain):
            pipeline.hkeys(key)
        return leading_runs(cast(list[list[bytes]], await pipeline.execute()))

    async def observe(self, turn: Turn) -> None:
        """Engines tell which blocks are new: only those are written."""
        pipeline = self._client.pipeline(transaction=False)
        for key in block_keys(turn.chain)[turn.known :]:
            pipeline.hset(key, turn.holder, "")
        await pipeline.execute()

    async def load(self, turns: Iterable[Turn]) -> None:
        """Without redis-py, which takes ten times as long."""
        with RawConnection(self._url) as connection:
            writes: list[bytes] = []
            for turn in turns:
                holder = turn.holder.encode()
                writes += (encode(b"HSET", key, holder, b"") for key in block_keys(turn.chain)[turn.known :])
                if len(writes) >= _WRITES_AT_A_TIME:
                    connection.ask(b"".join(writes))
                    writes.clear()
            connection.ask(b"".join(writes))

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()


class FlatSearch:
    """A key for each block, few of them looked at."""

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(url)
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    async def prepare(self) -> None:
        """Load the functions."""
        await self._client.function_load(_FLAT_CODE, replace=True)

    async def match(self, chain: bytes) -> Mapping[str, int]:
        """One call."""
        reply = await _fcall(self._client, "bench_flat_match", chain, read_only=True)
        assert isinstance(reply, list)
        runs: dict[str, int] = {}
        for bits, end in zip(reply[-2::-2], reply[-1::-2], strict=True):
            for number, name in enumerate(self._names[: 8 * len(bits)]):
                if name not in runs and bits[number // 8] & 128 >> number % 8:
                    runs[name] = end
        return runs

    async def observe(self, turn: Turn) -> None:
        """One call; what is known already is found out there."""
        number = self._numbers.setdefault(turn.holder, len(self._numbers))
        if number == len(self._names):
            self._names.append(turn.holder)
        await _fcall(self._client, "bench_flat_observe", turn.chain, number)

    async def load(self, turns: Iterable[Turn]) -> None:
        """One after the other: the server is what takes the time."""
        for turn in turns:
            await self.observe(turn)

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()


class Radix:
    """Ours."""

    def __init__(self, url: str) -> None:
        self._client = connect(url)
        self._index = RedisRadix(self._client, "bench")

    async def prepare(self) -> None:
        """The index loads what it needs with its first call."""
        await self.match(bytes(HASH_BYTES))

    async def match(self, chain: bytes) -> Mapping[str, int]:
        """One call."""
        return (await self._index.match(as_chain(chain))).blocks

    async def observe(self, turn: Turn) -> None:
        """One call."""
        await self._index.observe(turn.holder, as_chain(turn.chain))

    async def load(self, turns: Iterable[Turn]) -> None:
        """Many at a time, which then share a pipeline."""
        waiting: list[Turn] = []
        for turn in turns:
            waiting.append(turn)
            if len(waiting) == _CALLS_AT_A_TIME:
                await self._observe_all(waiting)
                waiting.clear()
        await self._observe_all(waiting)

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def _observe_all(self, turns: Iterable[Turn]) -> None:
        async with TaskGroup() as group:
            for turn in turns:
                group.create_task(self.observe(turn))


DESIGNS: Final[Mapping[str, Callable[[str], Design]]] = {
    "key per block": KeyPerBlock,
    "flat, searched": FlatSearch,
    "radix (ours)": Radix,
}
"""How to make one for the server at a URL."""


def as_chain(hashes: bytes) -> Chain:
    """Packed hashes, as our index takes them."""
    blocks = len(hashes) // HASH_BYTES
    return Chain(hashes=hashes, block_size=_TOKENS_PER_BLOCK, prompt_tokens=blocks * _TOKENS_PER_BLOCK)


def block_keys(chain: bytes) -> list[bytes]:
    """The key of each block: its hash in decimal."""
    return [b"%d" % number for number in struct.unpack(f"<{len(chain) // HASH_BYTES}Q", chain)]


def leading_runs(holders_of_blocks: Iterable[list[bytes]]) -> dict[str, int]:
    """Who has the first block, and how many without a gap from there on. O(blocks × holders), less where equal."""
    runs: dict[str, int] = {}
    alive: set[bytes] | None = None
    before: list[bytes] = []
    at = 0
    for holders in holders_of_blocks:
        if holders != before:
            still = set(holders) if alive is None else alive.intersection(holders)
            runs.update((gone.decode(), at) for gone in (alive or set()) - still)
            alive, before = still, holders
        if not alive:
            return runs
        at += 1
    runs.update((holder.decode(), at) for holder in alive or ())
    return runs


async def _fcall(client: Redis, function: str, *args: bytes | int, read_only: bool = False) -> object:
    # redis-py types arguments as str and passes bytes and numbers through.
    call = client.fcall_ro if read_only else client.fcall
    return await cast(Awaitable[object], call(function, 1, "f", *cast(tuple[str, ...], args)))
