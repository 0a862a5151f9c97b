"""Pages that cost something, kept for some seconds: who asks for one meanwhile gets the same.

One that takes long to make is kept for longer, so that making it is a twentieth of the time at most.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

REST: Final = 20.0
"""Kept so many times as long as the making took, at least."""
_MOST: Final = 32
"""Different questions of one kind that are kept."""


class Kept:
    """By what is asked. One is made at a time."""

    def __init__(self, for_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._for_s = for_s
        self._monotonic = monotonic
        self._pages: dict[str, tuple[float, Any]] = {}
        """Until when each is kept."""
        self._turn = asyncio.Lock()  # spans the making: two of them would only take twice as long

    async def get(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The page of a name, made anew where it is too old. Raises what `make` raises; that is not kept."""
        async with self._turn:
            now_s = self._monotonic()
            found = self._pages.get(name)
            if found is not None and now_s < found[0]:
                return found[1]
            page = await make()
            self._pages.pop(name, None)
            made_s = self._monotonic()
            self._pages[name] = made_s + max(self._for_s, REST * (made_s - now_s)), page
            if len(self._pages) > _MOST:
                del self._pages[next(iter(self._pages))]
            return page
