"""The metrics of all workers, those that are gone included: what is counted never falls because a worker was replaced.

    scrape    texts of the workers that answer --kept--> + what workers left behind --> one text
    farewell  a worker that ends in order says its last text
    gone      its text is added to what is left behind: the last one that anybody saw, where it was killed

So a worker that is killed takes with it only what no scrape had shown. Texts are read and joined in a thread. What
workers say is OpenMetrics; what a scrape gets has the form that it can read.
"""

import asyncio
from collections.abc import Mapping

from gateway.exposition import Form
from gateway.workers.merging import Families, fleet_in, joined, lasting, read, without_others, written


class Expositions:
    """One per supervisor, on its loop. Workers are known by their number."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._said_farewell: set[int] = set()
        self._left_behind: Families = {}
        self._turn = asyncio.Lock()  # spans the threads: what is left behind and who is there must fit together

    async def of_all(self, texts: Mapping[int, bytes], form: Form) -> bytes:
        """One text, by what workers have just said, and by what others said last. O(lines)."""
        async with self._turn:
            self._texts.update((number, text) for number, text in texts.items() if number not in self._said_farewell)
            return await asyncio.to_thread(_one_text, self._left_behind, list(self._texts.values()), form)

    def farewell(self, number: int, text: bytes) -> None:
        """A worker's last text."""
        self._texts[number] = text
        self._said_farewell.add(number)

    async def gone(self, number: int) -> None:
        """A worker is no more."""
        self._said_farewell.add(number)  # for good: an answer may still be on its way
        async with self._turn:
            text = self._texts.get(number, b"")
            self._texts.pop(number, None)
            self._left_behind = await asyncio.to_thread(_with, self._left_behind, text, list(self._texts.values()))


def _one_text(left_behind: Families, texts: list[bytes], form: Form) -> bytes:
    return written(joined([left_behind, *map(read, texts)]), form)


def _with(left_behind: Families, text: bytes, of_others: list[bytes]) -> Families:
    """With what a worker has counted, without endpoints that neither it nor the others have any more."""
    gone = read(text)
    fleet = fleet_in(gone).union(*(fleet_in(read(one)) for one in of_others))
    whole = joined([left_behind, lasting(gone)])
    return without_others(whole, fleet) if fleet else whole
