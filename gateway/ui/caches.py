"""What the index holds of each endpoint's cache, and how its reports compare: from `/admin/index`, now and then.

It is counted where the index is, which takes a while where Redis is slow or away. So who looks at what happens has what
was counted last, and never waits; who asks for a page waits for it, for `PAGE_S`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from gateway.log_lines import LOGGER
from gateway.ui.inside import Inside
from gateway.ui.types import Page
from prefix_index import Claim

EVERY_S: Final = 10.0
OLD_S: Final = 30.0
"""What was counted longer ago is not shown: nobody looked meanwhile, or the index is silent."""
PAGE_S: Final = 3.0
_FIRST_S: Final = 0.5
"""How long a view waits for what was never counted."""
_NAMES: Final = ("coverage", "answers", "hit_share", "expected_share", "error_percent", "kv_events")
NO_CACHE: Final[Mapping[str, Any]] = dict.fromkeys(_NAMES)
"""Of an endpoint of which nothing is known."""
_INDEX: Final = ("store", "degraded", "unreadable", "queued_writes", "dropped_writes", "max_bytes")
_SIZES: Final = ("nodes", "blocks", "estimated_bytes")
_IN_MEMORY: Final = Claim.CONFIRMED.value
_NOT_READ: Final = "not_consumer"
_NOTHING: Final[Page] = {"endpoints": {}, "index": dict.fromkeys((*_INDEX, *_SIZES))}


class Caches:
    """One per process. `run` must be under way for `latest`."""

    def __init__(self, inside: Inside, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inside = inside
        self._monotonic = monotonic
        self._counted: Page | None = None
        self._counted_at_s = 0.0
        self._looked = asyncio.Event()
        self._known = asyncio.Event()
        self._turn = asyncio.Lock()  # spans the asking: who wants the same meanwhile gets the same

    async def run(self) -> None:
        """Count while somebody looks, until cancelled."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            try:
                await self.get()
            except Exception as error:  # noqa: BLE001 - the guard of the loop: what was counted last is shown
                LOGGER.error("the index could not be counted", extra={"fields": {"error": repr(error)}})
            await asyncio.sleep(EVERY_S)

    async def latest(self) -> Page:
        """What was counted last, by `endpoints` and of the `index`; all unknown where that is old or takes long."""
        self._looked.set()
        if self._counted is None or self._monotonic() - self._counted_at_s > OLD_S:
            self._counted = None
            self._known.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_S):
                    await self._known.wait()
        return self._counted or _NOTHING

    async def fresh(self, within_s: float = PAGE_S) -> Page:
        """The same, at most `EVERY_S` old; what was counted last where that takes longer than `within_s`."""
        try:
            async with asyncio.timeout(within_s):
                return await self.get()
        except TimeoutError:
            return await self.latest()

    async def get(self) -> Page:
        """The same, at most `EVERY_S` old, however long it takes."""
        async with self._turn:
            if self._counted is None or self._monotonic() - self._counted_at_s >= EVERY_S:
                self._counted = caches_of(await self._inside.page("/admin/index"))
                self._counted_at_s = self._monotonic()
                self._known.set()
            return self._counted


def caches_of(report: Mapping[str, Any]) -> Page:
    """`/admin/index` by endpoint: coverage, shares of the last answers, the state of the feed. Pure."""
    endpoints: dict[str, Page] = {}
    for row in report["holders"]:
        if row["is_present"] and row["claim"] == _IN_MEMORY and row["capacity_blocks"] is not None:
            told = endpoints.setdefault(row["endpoint"], dict(NO_CACHE))
            told["coverage"] = _covered(told["coverage"], row["blocks"], row["capacity_blocks"])
    for row in report["reliability"]["endpoints"]:
        window = row["window"]
        told = endpoints.setdefault(row["endpoint"], dict(NO_CACHE))
        if told["answers"] is None or window["answers"] > told["answers"]:  # of two modes the one in use
            told["answers"] = window["answers"]
            told["hit_share"], told["expected_share"] = window["reported_share"], window["expected_share"]
            told["error_percent"] = window["mean_absolute_error_percent"]
    for row in report["feeds"]:
        told = endpoints.setdefault(row["endpoint_id"], dict(NO_CACHE))
        if told["kv_events"] in (None, _NOT_READ):
            told["kv_events"] = row["state"]
    total = report["total"]
    sizes = dict.fromkeys(_SIZES) if total is None else {name: total[name] for name in _SIZES}
    return {"endpoints": endpoints, "index": {**{name: report[name] for name in _INDEX}, **sizes}}


def _covered(before: Page | None, blocks: int, capacity_blocks: int) -> Page:
    """One more cache of an endpoint, which has one for each of its ranks."""
    if before is not None:
        blocks, capacity_blocks = blocks + before["blocks"], capacity_blocks + before["capacity_blocks"]
    share = blocks / capacity_blocks if capacity_blocks else None
    return {"blocks": blocks, "capacity_blocks": capacity_blocks, "share": share}
