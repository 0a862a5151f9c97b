"""The two radix indexes behind one face, and chains made of letters."""

import asyncio
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from redis.asyncio import Redis
from xxhash import xxh3_64_intdigest

from prefix_index.redis_check import check_pool
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.types import Chain, Claim, Match

REDIS = shutil.which("redis-server")
SERVERS = {"valkey": None} if REDIS is None else {"valkey": None, "redis": Path(REDIS)}
"""Kinds of server at hand, with the binary where it is not the packaged one."""


def chain(prompt: str) -> Chain:
    """A chain with one block for each letter; equal prefixes of prompts give equal prefixes of chains."""
    hashes, previous = b"", 7
    for letter in prompt:
        previous = xxh3_64_intdigest(letter.encode(), previous)
        hashes += struct.pack("<Q", previous)
    return Chain(hashes=hashes, block_size=16, prompt_tokens=16 * len(prompt) + 3)


class Subject(Protocol):
    """What the contract is about, as plain calls."""

    def match(self, chain: Chain) -> Match[str]: ...
    def observe(self, holder: str, chain: Chain, claim: Claim = ...) -> int: ...
    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None = ...) -> int: ...
    def evict(self, holder: str, to_blocks: int, claim: Claim = ...) -> int: ...
    def clear(self, holder: str, claim: Claim | None = ...) -> None: ...
    def set_capacity(self, holder: str, blocks: int) -> None: ...
    def blocks_of(self, holder: str, claim: Claim = ...) -> int: ...
    def check(self) -> list[str]: ...


def runs_of(found: Match[str], claim: Claim) -> Mapping[str, int]:
    """The leading runs of one claim."""
    return {
        Claim.CONFIRMED: found.blocks,
        Claim.SPECULATIVE: found.speculative,
        Claim.HOST: found.host,
        Claim.DISK: found.disk,
    }[claim]


class InRedis:
    """`RedisRadix` as plain calls, on a pool of its own."""

    pools = count()

    def __init__(self, url: str, *, max_bytes: int = 0, speculative_s: float = 600.0) -> None:
        self.runner = asyncio.Runner()
        self.pool = f"contract {next(self.pools)}"
        self.client = Redis.from_url(url)
        self.index = RedisRadix(self.client, self.pool, max_bytes=max_bytes, speculative_s=speculative_s)
        self.capacities: dict[str, int] = {}
        self.fence: int | None = None

    def match(self, chain: Chain) -> Match[str]:
        return self.runner.run(self.index.match(chain))

    def observe(self, holder: str, chain: Chain, claim: Claim = Claim.CONFIRMED) -> int:
        capacity, fence = self.capacities.get(holder), self.fence
        return self.runner.run(self.index.observe(holder, chain, claim, capacity_blocks=capacity, generation=fence))

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None = None) -> int:
        return self.runner.run(self.index.forget(holder, chain, from_block, claim))

    def evict(self, holder: str, to_blocks: int, claim: Claim = Claim.CONFIRMED) -> int:
        return self.runner.run(self.index.evict(holder, to_blocks, claim))

    def clear(self, holder: str, claim: Claim | None = None) -> None:
        self.runner.run(self.index.clear(holder, claim, generation=self.fence))

    @contextmanager
    def fenced(self, generation: int) -> Iterator[None]:
        """Writes carry this generation."""
        self.fence = generation
        yield
        self.fence = None

    def generations(self) -> Mapping[str, int]:
        self.match(chain(""))
        return self.index.registry.generations

    def set_capacity(self, holder: str, blocks: int) -> None:
        self.capacities[holder] = blocks

    def blocks_of(self, holder: str, claim: Claim = Claim.CONFIRMED) -> int:
        return self.runner.run(self.index.blocks_of(holder, claim))

    def check(self) -> list[str]:
        return self.runner.run(check_pool(self.client, self.pool))

    def stored_nodes(self) -> int:
        async def length() -> int:
            return await self.client.hlen(pool_keys(self.pool)[0].decode())

        return self.runner.run(length())

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()
