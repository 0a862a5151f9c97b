"""Which arms are stopped, the same for all workers and replicas.

    ModelRoutes --stopped here, let go on here--> waits --SET--> Redis     for each arm why, or that it goes on
         ^                                                         |
         '--------------- what was last said anywhere -------------'       GET every LOOK_EVERY_S

What Redis says counts, but for what was decided here and it has not been told yet. So an arm that one process found to
be worse, or an operator stopped anywhere, gets nothing anywhere some seconds later, also from processes that start
afterwards; and one that is let go on goes on everywhere. Where Redis knows nothing, since it is away or has lost it,
each keeps to what it knows, and says once more what is stopped: nothing goes on by accident. What is said is kept for
`KEPT_S`.
"""

import asyncio
from typing import Final

from redis import exceptions as redis_errors

from gateway.model_routes.routes import ModelRoutes
from prefix_index import RedisClient, pool_tag

LOOK_EVERY_S: Final = 2.0
KEPT_S: Final = 7 * 24 * 3600
"""A week: longer than anybody leaves a canary without a look at it."""
DEADLINE_S: Final = 1.0
_MOST_WHY_BYTES: Final = 200
_GOES_ON: Final = b"-"
"""In place of a reason why it is stopped."""


class SharedStops:
    """Keeps `routes` in step with Redis. `run` does the work."""

    def __init__(self, routes: ModelRoutes, redis: RedisClient, pool: str) -> None:
        self._routes = routes
        self._redis = redis
        self._prefix = f"{pool_tag(pool)}:arm:".encode()
        self._untold: dict[tuple[str, str], str | None] = {}
        routes.stop_changed = self._changed

    async def run(self) -> None:
        """Tell and look, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Tell Redis what it does not know yet, and take over what it knows. Never raises for a Redis that is away.
        O(arms) round trips."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._tell()
                for name, arm in self._routes.arms():
                    said = await self._redis.get(self._key(name, arm))
                    if isinstance(said, bytes):
                        self._take_over(name, arm, said)
                    else:
                        await self._remind(name, arm)
        except (redis_errors.RedisError, OSError, TimeoutError):
            return

    def _take_over(self, name: str, arm: str, said: bytes) -> None:
        if (name, arm) not in self._untold:
            self._routes.take_over(name, arm, None if said == _GOES_ON else said.decode(errors="replace"))

    async def _remind(self, name: str, arm: str) -> None:
        """Redis has lost it: who starts now is to know. Whatever somebody else has said meanwhile stays."""
        why = self._routes.why_stopped(name, arm)
        if why is not None:
            await self._redis.set(self._key(name, arm), why.encode()[:_MOST_WHY_BYTES], nx=True, ex=KEPT_S)

    def _changed(self, name: str, arm: str, why: str | None) -> None:
        self._untold[name, arm] = why

    async def _tell(self) -> None:
        for (name, arm), why in list(self._untold.items()):
            said = _GOES_ON if why is None else why.encode()[:_MOST_WHY_BYTES]
            await self._redis.set(self._key(name, arm), said, ex=KEPT_S)
            if self._untold.get((name, arm)) == why:  # it may have changed meanwhile
                del self._untold[name, arm]

    def _key(self, name: str, arm: str) -> bytes:
        return self._prefix + f"{name}\0{arm}".encode()
