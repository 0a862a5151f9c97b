"""Request ids: 128 bits, sortable by time, made here and nowhere else.

The layout is that of a ULID: 48 bits of Unix milliseconds, 80 random bits, in Crockford's base 32, so ids of one
gateway sort by time and ids of several never collide.

    26 digits = 13 pairs of 10 bits, looked up          2 us an id; the system is asked for chance once for 400 of them,
                                                        since that call lets other threads take over the interpreter
"""

import os
from collections.abc import Callable
from typing import Final

from gateway.types import RequestId

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_RANDOM_BYTES: Final = 10
_SHIFTS: Final = tuple(range(120, -1, -10))
_AT_ONCE: Final = 400


def _random_bytes() -> Callable[[], bytes]:
    """Ten new random bytes at each call; one loop's, and not to be kept over a fork."""
    kept: list[bytes] = []

    def more() -> bytes:
        if not kept:
            drawn = os.urandom(_AT_ONCE * _RANDOM_BYTES)
            kept.extend(drawn[at : at + _RANDOM_BYTES] for at in range(0, len(drawn), _RANDOM_BYTES))
        return kept.pop()

    return more


_chance = _random_bytes()


def new_request_id(unix_ms: int) -> RequestId:
    """A fresh id for a request received at `unix_ms`; 26 characters."""
    value = int.from_bytes(unix_ms.to_bytes(6, "big") + _chance(), "big")
    return RequestId("".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS]))
