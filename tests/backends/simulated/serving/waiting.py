"""Waiting for what a server comes to by itself."""

import time
from collections.abc import Callable


def until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    """Look again and again; fails when the time is over."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
