"""Endpoints out of a file that changes while it is read: looked at every second, taken over whole or not at all.

    stat --as before?--> nothing new
      `--> read --as before?--> nothing new
             `--> written a moment ago, and not read like this before?  look again: it may be half of it
                    `--> parse --> the listing         invalid, or gone: the listing before stays, and why is said

Half of a list is a list too: whoever writes a file in place would lose half of the fleet for a moment. So what is fresh
must be the same at two looks. The file is read in a thread.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from backends.discovery.types import Found, Report

MOST_BYTES: Final = 1 << 20
"""Of a file: five thousand endpoints with all that can be said of them."""
FRESH_S: Final = 2.0
"""For so long after its time a file may still be written, or be written again without its time showing it."""


class ListingInvalid(ValueError):
    """What was read is no list of endpoints; the text says where and why, and repeats no secret."""


class WatchedFile:
    """A source. `parse` raises `ListingInvalid`; `is_ours`: we alone write the file, whole, and where there
    is none yet it is empty."""

    def __init__(
        self,
        name: str,
        path: Path,
        parse: Callable[[bytes], Sequence[Found]],
        *,
        poll_s: float,
        is_ours: bool = False,
    ) -> None:
        self.name = name
        self._path = path
        self._parse = parse
        self._poll_s = poll_s
        self._is_ours = is_ours
        self._stat: tuple[int, int, int] | None = None
        self._digest: bytes | None = None
        self._unsettled: bytes | None = None
        self._refused: tuple[bytes, ListingInvalid] | None = None
        self._listing: Sequence[Found] | None = None
        self._problem: str | None = None
        self._look_now = asyncio.Event()

    def hurry(self) -> None:
        """Look now, since the file was just changed by ourselves."""
        self._look_now.set()

    async def run(self, report: Report) -> None:
        """Look until cancelled."""
        while True:
            await self.look(report)
            self._look_now.clear()
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._look_now.wait()
            except TimeoutError:
                pass

    async def look(self, report: Report) -> None:
        """Say what the file says."""
        await asyncio.to_thread(self._read)
        if self._problem is not None:
            report.failed(self._problem)
        elif self._listing is not None:
            report.found(self._listing)

    def _read(self) -> None:
        try:
            self._take_in()
            self._problem = None
        except FileNotFoundError:
            if self._is_ours:
                self._listing, self._stat, self._digest, self._problem = (), None, None, None
            else:
                self._problem = f"{self._path.name}: there is no such file"
        except OSError as error:
            self._problem = f"{self._path.name}: {error.strerror}"
        except ListingInvalid as error:
            self._problem = f"{self._path.name}: {error}"

    def _take_in(self) -> None:
        found = self._path.stat()
        stat = (found.st_mtime_ns, found.st_size, found.st_ino)
        is_fresh = time.time() - found.st_mtime < FRESH_S
        if stat == self._stat and not is_fresh and self._problem is None:
            return
        if found.st_size > MOST_BYTES:
            raise ListingInvalid(f"it is longer than {MOST_BYTES} bytes")
        data = self._path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if digest == self._digest:
            self._stat = stat
            return
        if is_fresh and not self._is_ours and self._listing is not None and digest != self._unsettled:
            self._unsettled = digest
            return
        if self._refused is not None and self._refused[0] == digest:
            raise self._refused[1]
        try:
            self._listing = self._parse(data)
        except ListingInvalid as invalid:
            self._refused = digest, invalid
            raise
        self._stat, self._digest = stat, digest
