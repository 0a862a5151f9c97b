"""Endpoints behind a name, looked up again and again.

    round   1        2        3        4        5
    a       there    there    -        there    there       missing once: an answer may leave some out
    b       there    there    -        -        -           missing `misses` times in a row: no more listed
    answer  a b      a b      fails    a        a           a resolver that fails says nothing of anybody

Most resolvers give an answer that is cut, or a part of a long list, now and then; so who is missing once is not gone.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from backends.discovery.lookups import Looked, LookUp, LookupFailed
from backends.discovery.types import Found, Report

LEAST_WAIT_S: Final = 1.0
"""Between two look-ups, whatever the time to live."""


class DnsName:
    """A source. `prefix` and `path` stand before and behind host and port of each place: `http://`, `/base`."""

    def __init__(self, name: str, look_up: LookUp, *, prefix: str, path: str, interval_s: float, misses: int) -> None:
        self.name = name
        self._look_up = look_up
        self._prefix = prefix
        self._path = path
        self._interval_s = interval_s
        self._misses = misses
        self._missing: dict[str, int] = {}
        """By URL of those that are listed, for how many rounds they were missing."""
        self._listed: Sequence[Found] | None = None

    async def run(self, report: Report) -> None:
        """Look it up until cancelled: when what was said holds no longer, at the latest after the interval."""
        while True:
            wait_s = await self.look(report)
            await asyncio.sleep(wait_s)

    async def look(self, report: Report) -> float:
        """One round; returns the seconds to the next one."""
        try:
            looked = await self._look_up()
        except LookupFailed as failure:
            report.failed(str(failure))
            return self._interval_s
        before, listing = self._listed, self._listing(looked)
        if looked.places or listing != before:
            report.found(listing)
        if not looked.places:
            report.failed("it stands for nothing")
        self._listed = listing
        if looked.ttl_s is None:
            return self._interval_s
        return min(max(looked.ttl_s, LEAST_WAIT_S), self._interval_s)

    def _listing(self, looked: Looked) -> Sequence[Found]:
        found = {
            f"{self._prefix}{f'[{host}]' if ':' in host else host}:{port}{self._path}" for host, port in looked.places
        }
        missing = {url: 0 if url in found else rounds + 1 for url, rounds in self._missing.items()}
        self._missing = dict.fromkeys(found, 0) | {url: n for url, n in missing.items() if n < self._misses}
        return [Found(url) for url in sorted(self._missing)]
