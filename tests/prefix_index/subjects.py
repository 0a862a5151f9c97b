"""The two radix indexes behind one face, and chains made of letters."""

import asyncio
import shutil
import struct
from itertools import count
from pathlib import Path
from typing import Protocol

from xxhash import xxh3_64_intdigest

from prefix_index.redis_check import check_pool
from prefix_index.redis_link import connect
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.types import Chain, Evidence, Match

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
    def observe(self, holder: str, chain: Chain, evidence: Evidence = ...) -> int: ...
    def forget(self, holder: str, chain: Chain, from_block: int) -> int: ...
    def evict(self, holder: str, to_blocks: int) -> int: ...
    def clear(self, holder: str) -> None: ...
    def raise_generation(self, holder: str) -> int: ...
    def set_capacity(self, holder: str, blocks: int) -> None: ...
    def blocks_of(self, holder: str) -> int: ...
    def check(self) -> list[str]: ...


class InRedis:
    """`RedisRadix` as plain calls, on a pool of its own."""

    pools = count()

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.pool = f"contract {next(self.pools)}"
        self.client = connect(url)
        self.index = RedisRadix(self.client, self.pool)

    def match(self, chain: Chain) -> Match[str]:
        return self.runner.run(self.index.match(chain))

    def observe(self, holder: str, chain: Chain, evidence: Evidence = Evidence.CONFIRMED) -> int:
        return self.runner.run(self.index.observe(holder, chain, evidence))

    def forget(self, holder: str, chain: Chain, from_block: int) -> int:
        return self.runner.run(self.index.forget(holder, chain, from_block))

    def evict(self, holder: str, to_blocks: int) -> int:
        return self.runner.run(self.index.evict(holder, to_blocks))

    def clear(self, holder: str) -> None:
        self.runner.run(self.index.clear(holder))

    def raise_generation(self, holder: str) -> int:
        return self.runner.run(self.index.raise_generation(holder))

    def set_capacity(self, holder: str, blocks: int) -> None:
        self.runner.run(self.index.set_capacity(holder, blocks))

    def blocks_of(self, holder: str) -> int:
        return self.runner.run(self.index.blocks_of(holder))

    def check(self) -> list[str]:
        return self.runner.run(check_pool(self.client, self.pool))

    def stored_nodes(self) -> int:
        async def length() -> int:
            return await self.client.hlen(pool_keys(self.pool)[0])

        return self.runner.run(length())

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()
