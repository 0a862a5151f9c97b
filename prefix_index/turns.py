"""Long work beside requests: a millisecond of it, then others have the loop.

A thread would not do: it gives the interpreter up only every 5 ms, and a match waits no longer than that.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

_TURN_S: Final = 0.001
_ITEMS_BETWEEN_LOOKS: Final = 16

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; between some of them others have the loop. What is done with each should take microseconds."""
    ends_s = time.monotonic() + _TURN_S
    for number, item in enumerate(items):
        if number % _ITEMS_BETWEEN_LOOKS == 0 and time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + _TURN_S
        yield item
