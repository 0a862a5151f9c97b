"""The engine's clock: real time, faster or slower, or standing still."""

import asyncio
import time
from math import inf


class EngineClock:
    """Seconds of an engine since it was started. Its rate may change; what has passed stays passed."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._since_s = time.monotonic()
        self._then_s = 0.0
        self._changed = asyncio.Event()

    def now_s(self) -> float:
        """Seconds of the engine."""
        return self._then_s + (time.monotonic() - self._since_s) * self._rate

    def change(self, rate: float) -> None:
        """From now on so many seconds of the engine go by in one; 0 is a standstill."""
        self._then_s = self.now_s()
        self._since_s = time.monotonic()
        self._rate = rate
        self._changed.set()
        self._changed = asyncio.Event()

    async def sleep_s(self, seconds: float) -> None:
        """Until so many seconds of the engine have gone by."""
        until_s = self.now_s() + seconds
        while (left_s := self.wait_s(until_s)) > 0:
            try:
                async with asyncio.timeout(None if left_s == inf else left_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def wait_s(self, until_s: float) -> float:
        """Real seconds until the engine's clock shows this, `inf` if it stands."""
        if self._rate <= 0 or until_s == inf:
            return inf
        return max(0.0, until_s - self.now_s()) / self._rate
