"""A keys file that changes while the gateway runs: looked at every second, taken over whole, or not at all.

    stat --changed?--> read --another digest?--> parse --> Authenticator.take_over
                                                   `-- invalid: what is known stays in force, and /health says why

The file is read in a thread. One that was written a moment ago is read again, since a second change within the
resolution of its time would not show.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.edge.auth import Authenticator, KeysFileInvalid, authenticator_from
from gateway.keys_file import parse_keys_file
from gateway.limit_metrics import LimitMetrics
from gateway.log_lines import LOGGER

_FRESH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class WatchedKeys:
    """Which file, and how it is read."""

    path: Path
    salt_secret: Callable[[], bytes]
    cached_token_weight: float
    poll_s: float


class KeysWatch:
    """Keeps an authenticator up to date. `changed` is called after each takeover; `problem` says what is wrong."""

    def __init__(
        self,
        authenticator: Authenticator,
        watched: WatchedKeys | None,
        metrics: LimitMetrics,
        changed: Callable[[], None],
    ) -> None:
        self._authenticator = authenticator
        self._watched = watched
        self._metrics = metrics
        self._changed = changed
        self._seen: tuple[int, int, int] | None = None
        self._digest: bytes | None = None
        self.problem: str | None = None

    async def run(self) -> None:
        """Look, until cancelled; returns at once where there is no file. The first look only remembers."""
        if self._watched is None:
            return
        await asyncio.to_thread(self._read, self._watched)
        while True:
            await asyncio.sleep(self._watched.poll_s)
            await self.look(self._watched)

    async def look(self, watched: WatchedKeys) -> None:
        """Take over what has changed since the last look."""
        try:
            newer = await asyncio.to_thread(self._read, watched)
        except KeysFileInvalid as error:
            if self.problem is None:
                LOGGER.error("the changed keys file cannot be used, the keys before it stay in force: %s", error)
                self._metrics.keys_reloads("invalid").inc()
            self.problem = str(error)
            return
        if newer is not None:
            self.problem = None
            self._authenticator.take_over(newer)
            self._changed()
            self._metrics.keys_reloads("taken").inc()
            LOGGER.info("keys file taken over", extra={"fields": {"share_groups": len(newer.share_groups)}})

    def _read(self, watched: WatchedKeys) -> Authenticator | None:
        """What the file says now; None where it is as it was. The first time nothing is new."""
        try:
            stat = watched.path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen == self._seen and time.time() - stat.st_mtime > _FRESH_S:
                return None
            data = watched.path.read_bytes()
        except OSError as error:
            raise KeysFileInvalid(f"{watched.path}: {error.strerror}") from error
        digest, before = hashlib.sha256(data).digest(), self._digest
        if digest == before and self.problem is None:
            self._seen = seen
            return None
        self._seen, self._digest = seen, digest
        if before is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise KeysFileInvalid(f"{watched.path}: {error}") from error
        file = parse_keys_file(watched.path, text)
        return authenticator_from(file, watched.salt_secret(), watched.cached_token_weight)
