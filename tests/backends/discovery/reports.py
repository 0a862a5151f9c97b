"""A report that keeps what it is told, and can be waited for."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.discovery.types import Found


@dataclass(slots=True)
class Told:
    """`listing` is the latest; `problems` are all, in order."""

    listing: Sequence[Found] | None = None
    problems: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def found(self, listing: Sequence[Found]) -> None:
        self.listing = tuple(listing)
        self.news.set()

    def failed(self, why: str) -> None:
        self.problems.append(why)
        self.news.set()

    @property
    def urls(self) -> list[str] | None:
        return None if self.listing is None else sorted(one.url for one in self.listing if not one.draining)

    async def until(self, condition: Callable[[], bool], within_s: float = 10) -> None:
        """Wait until what was told fulfils it."""
        async with asyncio.timeout(within_s):
            while not condition():
                self.news.clear()
                await self.news.wait()
