"""Warnings that may come thousands of times a second, and are worth one line."""

import logging
import time
from collections.abc import Callable


class QuietLog:
    """One line of a kind per `every_s`, so that a Redis that comes and goes does not fill the log."""

    def __init__(self, logger: logging.Logger, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._every_s = every_s
        self._clock = clock
        self._said_at_s: dict[str, float] = {}

    def warn(self, message: str, *args: object) -> None:
        """Log a warning, unless one with this message (before its arguments) was logged shortly before."""
        now_s = self._clock()
        if now_s - self._said_at_s.get(message, float("-inf")) >= self._every_s:
            self._said_at_s[message] = now_s
            self._logger.warning(message, *args)
