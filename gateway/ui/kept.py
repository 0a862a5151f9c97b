"""Pages that cost something, kept for some seconds: who asks for one meanwhile gets the same."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

_MOST: Final = 32
"""Different questions of one kind that are kept."""


class Kept:
    """By what is asked. One is made at a time."""

    def __init__(self, for_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._for_s = for_s
        self._monotonic = monotonic
        self._pages: dict[str, tuple[float, Any]] = {}
        self._turn = asyncio.Lock()  # spans the making: two of them would only take twice as long

    async def get(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The page of a name, made anew where it is too old. Raises what `make` raises; that is not kept."""
        async with self._turn:
            now_s = self._monotonic()
            found = self._pages.get(name)
            if found is not None and now_s - found[0] < self._for_s:
                return found[1]
            page = await make()
            self._pages.pop(name, None)
            self._pages[name] = self._monotonic(), page
            if len(self._pages) > _MOST:
                del self._pages[next(iter(self._pages))]
            return page
