"""LoRA adapters of a server: which it knows, which are resident, and what it takes to make one so."""

import asyncio
from collections import OrderedDict

from backends.simulated.serving.clock import EngineClock


class Adapters:
    """Adapters by name; at most `most` are resident, the one used longest ago leaves first.

    An adapter that requests use stays. Loading takes `load_s` of the engine's seconds and is done once for all.
    """

    def __init__(self, names: tuple[str, ...], most: int, load_s: float, clock: EngineClock) -> None:
        self.known: dict[str, str] = {name: name for name in names}
        self._most = most
        self._load_s = load_s
        self._clock = clock
        self._resident: OrderedDict[str, int] = OrderedDict()  # to the number of requests that use it
        self._changed = asyncio.Condition()
        self._lock = asyncio.Lock()  # spans the wait for room and the loading: one adapter is loaded at a time
        self.loads = 0
        self.waiting: dict[str, int] = {}

    @property
    def most(self) -> int:
        """Most that are resident."""
        return self._most

    @property
    def resident(self) -> tuple[str, ...]:
        """Those that are resident, the one used longest ago first."""
        return tuple(self._resident)

    @property
    def running(self) -> tuple[str, ...]:
        """Those that requests use now."""
        return tuple(name for name, users in self._resident.items() if users)

    def add(self, name: str, path: str) -> None:
        """Known from now on."""
        self.known[name] = path

    def remove(self, name: str) -> bool:
        """No longer known nor resident; False where it was not known."""
        self._resident.pop(name, None)
        return self.known.pop(name, None) is not None

    async def use(self, name: str) -> None:
        """Resident from now on until `done`; waits for room and for the loading."""
        self.waiting[name] = self.waiting.get(name, 0) + 1
        try:
            async with self._lock:
                if name not in self._resident:
                    await self._load(name)
                self._resident[name] += 1
                self._resident.move_to_end(name)
        finally:
            self.waiting[name] -= 1
            if not self.waiting[name]:
                del self.waiting[name]

    async def done(self, name: str) -> None:
        """A request that used it has ended."""
        if name in self._resident:
            self._resident[name] -= 1
        async with self._changed:
            self._changed.notify_all()

    async def _load(self, name: str) -> None:
        while len(self._resident) >= self._most:
            idle = next((other for other, users in self._resident.items() if not users), None)
            if idle is not None:
                del self._resident[idle]
                continue
            async with self._changed:
                await self._changed.wait()
        await self._clock.sleep_s(self._load_s)
        self.loads += 1
        self._resident[name] = 0
