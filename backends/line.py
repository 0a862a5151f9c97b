"""What an answer comes over, as its reader sees it: a connection, or what stands for one (gateway/epp)."""

import asyncio
from typing import Protocol


class Line(Protocol):
    """What an answer comes over: a `backends.connection.Connection`, or what stands for one."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where it is read."""

    @property
    def is_used(self) -> bool:
        """Whether another answer came over it before."""

    @property
    def paused(self) -> bool:
        """Whether nothing is read since much waits for the reader."""

    def resume(self) -> None:
        """Read on."""

    def expire_after(self, patience_s: float) -> None:
        """The reader waits: fail if nothing comes for so long."""

    def expire_never(self) -> None:
        """The reader does not wait any more."""

    def abort(self) -> None:
        """The reader has left. Idempotent."""
