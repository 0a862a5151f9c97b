"""EndpointSlices, listed once and watched from there on; listed again when the watch has lost its place.

    list --version--> watch --ends in its time--> watch from the last version seen
                        |----breaks off----------> the same, a little later
                        `----410, or nonsense----> list                    failures in a row: waits grow to 30 s

Between a list and the next nothing is lost: a watch goes on from the version of the last change or bookmark, and a list
replaces all that was known, so that what went unseen in a gap is seen as gone. While the API server cannot be asked,
what was known stays.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from backends.discovery.kubernetes.api import ApiFailed, ApiGone, SliceApi
from backends.discovery.kubernetes.slices import Reaching, Slice, listing_of
from backends.discovery.types import Report

WATCH_S: Final = 60
"""A watch is renewed so often: one whose connection died unseen says nothing for no longer."""
FIRST_WAIT_S: Final = 0.25
MOST_WAIT_S: Final = 30.0
BRIEF_S: Final = 1.0
"""A watch that ends sooner was none, and the next one waits."""
MOST_SLICES: Final = 2000
MOST_ENDPOINTS: Final = 20_000


class KubernetesSlices:
    """A source."""

    def __init__(
        self,
        name: str,
        api: SliceApi,
        reaching: Reaching,
        *,
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._api = api
        self._reaching = reaching
        self._rng = rng
        self._clock = clock
        self._slices: dict[str, Slice] = {}
        self._version: str | None = None
        """From which a watch goes on; None: from nowhere, list first."""

    async def run(self, report: Report) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            began_s, wait_s = self._clock(), None
            try:
                if self._version is None:
                    await self._list(report)
                await self._watch(report)
                failed = self._clock() - began_s < BRIEF_S
            except ApiFailed as failure:
                failed, wait_s = True, failure.after_s
                if isinstance(failure, ApiGone):
                    self._version = None
                if failures or not isinstance(failure, ApiGone):
                    report.failed(str(failure))
            # One that went well for long has nothing to do with those before it.
            failures = (failures if self._clock() - began_s < MOST_WAIT_S else 0) + 1 if failed else 0
            if failures:
                least_s = self._wait_s(failures)
                await asyncio.sleep(least_s if wait_s is None else min(max(wait_s, least_s), MOST_WAIT_S))

    async def _list(self, report: Report) -> None:
        slices, version = await self._api.list()
        if len(slices) > MOST_SLICES:
            raise ApiFailed(f"more than {MOST_SLICES} slices: choose fewer by the selector")
        self._slices = {one.metadata.name: one for one in slices}
        self._version = version
        self._say(report)

    async def _watch(self, report: Report) -> None:
        assert self._version is not None, "listed before"
        async with self._api.watching(self._version, WATCH_S) as changes:
            self._say(report)  # it answers
            async for change in changes:
                if change.slice is not None:
                    self._take(change.slice, deleted=change.deleted)
                self._version = change.version
                self._say(report)

    def _say(self, report: Report) -> None:
        if sum(len(one.endpoints or ()) for one in self._slices.values()) > MOST_ENDPOINTS:
            report.failed(f"more than {MOST_ENDPOINTS} endpoints: choose fewer by the selector")
        else:
            report.found(listing_of(self._slices.values(), self._reaching))

    def _take(self, changed: Slice, *, deleted: bool) -> None:
        if deleted:
            self._slices.pop(changed.metadata.name, None)
        else:
            self._slices[changed.metadata.name] = changed
            if len(self._slices) > MOST_SLICES:
                raise ApiFailed(f"more than {MOST_SLICES} slices: choose fewer by the selector")

    def _wait_s(self, failures: int) -> float:
        """Longer each time, and another at each replica: they all lost the same server."""
        most_s = min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 20), MOST_WAIT_S)
        return most_s * self._rng.uniform(0.5, 1.0)
