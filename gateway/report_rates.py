"""How often a tenant may have its usage read: one reading at a time, and a bucket of them that fills again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Final

from gateway.errors import RateLimited

BURST: Final = 10
PER_MINUTE: Final = 30
_MINUTE_S: Final = 60.0


class Rates:
    """Of all tenants; one entry for each that has asked. Tenants are those of the keys file, so it does not grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        """Readings left in the bucket, and when that was so."""
        self._reading: set[str] = set()

    @contextmanager
    def turn_of(self, tenant: str) -> Iterator[None]:
        """One reading of a tenant. Raises `RateLimited`."""
        if tenant in self._reading:
            raise RateLimited("your last report is still being made", "reports", 1, ())
        now_s = self._clock()
        left, since_s = self._left.get(tenant, (BURST, now_s))
        left = min(BURST, left + (now_s - since_s) * PER_MINUTE / _MINUTE_S)
        if left < 1:
            self._left[tenant] = left, now_s
            wait_s = ceil((1 - left) * _MINUTE_S / PER_MINUTE)
            raise RateLimited(f"at most {PER_MINUTE} reports a minute", "reports", wait_s, ())
        self._left[tenant] = left - 1, now_s
        self._reading.add(tenant)
        try:
            yield
        finally:
            self._reading.discard(tenant)
