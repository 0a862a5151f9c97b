"""Replicas of the gateway, as far as the shared index goes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prefix_index.index_options import SharedIndexOptions
from prefix_index.radix import RadixIndex
from prefix_index.shared_index import SharedIndex
from prefix_index.types import Match
from tests.prefix_index.door import WITHIN_S
from tests.prefix_index.subjects import chain

PATIENT = SharedIndexOptions(deadline_s=1.0, load_interval_s=0.005, heartbeat_s=0.02)
"""A deadline that a loaded machine keeps; what happens at the deadline has tests of its own."""


def twin_of(index: SharedIndex) -> RadixIndex[str]:
    """The stand-in of the only shard."""
    (shard,) = index._shards
    return shard.twin


@asynccontextmanager
async def running(index: SharedIndex) -> AsyncIterator[SharedIndex]:
    """An index whose writes are carried; killed at the end, not drained."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(index.run())
        try:
            yield index
        finally:
            task.cancel()


async def match_until(index: SharedIndex, prompt: str, condition: Callable[[Match[str]], object]) -> Match[str]:
    """Match until the answer is as awaited."""
    async with asyncio.timeout(WITHIN_S):
        while not condition(found := await index.match(chain(prompt))):
            await asyncio.sleep(0.002)
        return found
