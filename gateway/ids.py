"""Request ids: 128 bits, sortable by time, made here and nowhere else.

The layout is that of a ULID: 48 bits of Unix milliseconds, 80 random bits, in Crockford's base 32, so ids of one
gateway sort by time and ids of several never collide.
"""

import secrets

from gateway.types import RequestId

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_DIGITS = 26


def new_request_id(unix_ms: int) -> RequestId:
    """A fresh id for a request received at `unix_ms`; 26 characters."""
    value = unix_ms << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return RequestId("".join(_ALPHABET[value >> shift & 31] for shift in range(5 * (_DIGITS - 1), -1, -5)))
