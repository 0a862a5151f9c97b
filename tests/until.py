"""Waiting for what has no event to wait for: looked at again and again, at once and then more and more seldom.

    0  1  2  4  8  10  10 ... ms between looks; after `within_s` it is a TimeoutError

Where there is an event, wait for that. Bounds are generous: they are for what never comes, on a machine that is busy.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, overload

T = TypeVar("T")
WITHIN_S = 30.0


def pauses_s() -> Iterator[float]:
    """How long to wait before each next look."""
    pause_s = 0.0
    while True:
        yield pause_s
        pause_s = min(max(2 * pause_s, 0.001), 0.01)


@overload
async def until(
    ask: Callable[[], Awaitable[T]], met: Callable[[T], object] = bool, *, within_s: float = WITHIN_S
) -> T: ...
@overload
async def until(ask: Callable[[], T], met: Callable[[T], object] = bool, *, within_s: float = WITHIN_S) -> T: ...
async def until(ask: Callable[[], Any], met: Callable[[Any], object] = bool, *, within_s: float = WITHIN_S) -> Any:
    """Asks until the answer, awaited where it is to be, is as wanted: by default, until it is true. Gives it."""
    pauses = pauses_s()
    async with asyncio.timeout(within_s):
        while True:
            found = ask()
            if inspect.isawaitable(found):
                found = await found
            if met(found):
                return found
            await asyncio.sleep(next(pauses))


def until_in_thread(ask: Callable[[], T], met: Callable[[T], object] = bool, *, within_s: float = WITHIN_S) -> T:
    """The same where no loop runs, or in a thread beside it."""
    pauses, deadline_s = pauses_s(), time.monotonic() + within_s
    while not met(found := ask()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so within {within_s:g} s; the last answer was {found!r}")
        time.sleep(next(pauses))
    return found
