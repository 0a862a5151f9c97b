"""Who may look at the dashboard: a token once, then a signed cookie that any replica with the same token takes.

    token --login--> 1.EXPIRES.NONCE.SIGNATURE --each request--> is it ours, and is it still good?

    SIGNATURE = HMAC-SHA256(HMAC-SHA256(token, purpose), "1.EXPIRES.NONCE"), base64url

Nothing is kept of a session. So a logout takes the cookie from the browser that logs out, and another token ends all of
them. Guesses are counted by where they come from, and all together: a few a minute, whatever the address.
"""

import base64
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

COOKIE: Final = "prefixgate_ui"
MOST_WRONG: Final = 5
"""Wrong tokens from one address within `WRONG_WITHIN_S`."""
MOST_WRONG_OF_ALL: Final = 60
"""Of all addresses together."""
WRONG_WITHIN_S: Final = 60.0
_MOST_ADDRESSES: Final = 1024
_PURPOSE: Final = b"prefixgate dashboard session 1"
_VERSION: Final = "1"
_PARTS: Final = 4
_MOST_CHARACTERS: Final = 200
_CLOCKS_APART_S: Final = 60.0
"""How far the clocks of two replicas may be apart."""


class Sessions:
    """Makes and reads cookies. Pure but for the nonce; `wall` gives seconds since 1970."""

    def __init__(self, token: str, session_s: float, wall: Callable[[], float]) -> None:
        self._token = token.encode()
        self._key = hmac.digest(self._token, _PURPOSE, "sha256")
        self._session_s = session_s
        self._wall = wall

    def is_token(self, given: str) -> bool:
        """Whether it is the token, in the same time whatever it is."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token)

    def begin(self) -> str:
        """The value of a new cookie."""
        head = f"{_VERSION}.{int(self._wall() + self._session_s)}.{secrets.token_hex(8)}"
        return f"{head}.{self._signature(head)}"

    def until_s(self, value: str) -> float | None:
        """When the session of a cookie ends, in seconds since 1970; None where it has ended, or never was one.

        One that lasts longer than sessions do now is none either: `session_s` was made shorter.
        """
        parts = value.split(".")
        if len(value) > _MOST_CHARACTERS or len(parts) != _PARTS or not value.isascii():
            return None
        head, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature, self._signature(head)):
            return None
        until_s, now_s = float(parts[1]), self._wall()  # signed by us, so it is a number
        return until_s if now_s < until_s <= now_s + self._session_s + _CLOCKS_APART_S else None

    def _signature(self, head: str) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, head.encode(), "sha256")).decode().rstrip("=")


class Guesses:
    """Wrong tokens, by address. Bounded: of many addresses the one that was silent for longest is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._by_address: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=MOST_WRONG_OF_ALL)

    def wait_s(self, address: str) -> float:
        """How long this address must wait before it may try again; 0 where it may."""
        now_s = self._monotonic()
        own = self._by_address.get(address, deque[float]())
        return max(_left(own, MOST_WRONG, now_s), _left(self._all, MOST_WRONG_OF_ALL, now_s))

    def wrong(self, address: str) -> None:
        """A token was wrong."""
        now_s = self._monotonic()
        times = self._by_address.pop(address, None) or deque(maxlen=MOST_WRONG)
        times.append(now_s)
        self._all.append(now_s)
        self._by_address[address] = times
        if len(self._by_address) > _MOST_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]


def _left(times: deque[float], most: int, now_s: float) -> float:
    return max(times[0] + WRONG_WITHIN_S - now_s, 0.0) if len(times) == most else 0.0
