"""Pages that cost something, kept for some seconds: who asks for one meanwhile gets the same.

One that takes long to make is kept for longer, so that making it is a twentieth of the time at most. So is a failure
that took long, as where a ledger is silent: who asks meanwhile is told the same at once, and waits behind nobody.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gateway.errors import GatewayError

REST: Final = 20.0
"""What is made is kept so many times as long as the making took, at least."""
MOST_FAILED_S: Final = 15.0
"""The longest that a failure is kept: it may be mended at any time."""
_MOST: Final = 32
"""Different questions of one kind that are kept."""


class Kept:
    """By what is asked. One is made at a time."""

    def __init__(self, for_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._for_s = for_s
        self._monotonic = monotonic
        self._pages: dict[str, tuple[float, Any]] = {}
        """Until when each is kept."""
        self._failures = Failures(monotonic)
        self._turn = asyncio.Lock()  # spans the making: two of them would only take twice as long

    async def get(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The page of a name, made anew where it is too old. Raises what `make` raises."""
        async with self._turn:
            now_s = self._monotonic()
            found = self._pages.get(name)
            if found is not None and now_s < found[0]:
                return found[1]
            with self._failures.of(name):
                page = await make()
            self._pages.pop(name, None)
            made_s = self._monotonic()
            self._pages[name] = made_s + max(self._for_s, REST * (made_s - now_s)), page
            if len(self._pages) > _MOST:
                del self._pages[next(iter(self._pages))]
            return page


class Failures:
    """What failed lately, by what was asked: kept so many times as long as it took."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failed: dict[str, tuple[float, GatewayError]] = {}
        """Until when each is kept."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Try inside. Raises what failed lately; keeps what fails now."""
        began_s = self._monotonic()
        self._failed = {one: failed for one, failed in self._failed.items() if began_s < failed[0]}
        if name in self._failed:
            raise self._failed[name][1].with_traceback(None)
        try:
            yield
        except GatewayError as error:
            ended_s = self._monotonic()
            self._failed[name] = ended_s + min(REST * (ended_s - began_s), MOST_FAILED_S), error
            raise
