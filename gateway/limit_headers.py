"""What a client is told of its limits, in the headers of its API: the tightest of its tenant's and its key's.

    OpenAI       x-ratelimit-{limit,remaining,reset}-{requests,tokens}         resets as 1s, 6m0s, 250ms
    Anthropic    anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset} resets as times

Both stand on `/v1/messages`, the first elsewhere.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from billing import Allowance, Room
from gateway.types import Headers, Route

_Told = tuple[str, int, int, int]
"""What is limited, the limit, what is left, and ms until all of it is back."""


def limit_headers(allowances: Sequence[Allowance], rooms: Sequence[Room], route: Route, now: datetime) -> Headers:
    """Nothing where neither requests nor tokens are limited."""
    told: list[_Told] = []
    pairs = list(zip(allowances, rooms, strict=False))
    for what, found in (
        ("requests", [(r.requests_left, a.requests_per_minute, r.requests_reset_ms) for a, r in pairs]),
        ("tokens", [(r.tokens_left, a.tokens_per_minute, r.tokens_reset_ms) for a, r in pairs]),
    ):
        known = [(left, limit, reset) for left, limit, reset in found if left is not None and limit is not None]
        if known:
            left, limit, reset_ms = min(known)
            told.append((what, limit, left, reset_ms))
    openai = [header for one in told for header in _openai(one)]
    if route is not Route.MESSAGES:
        return tuple(openai)
    return (*openai, *(header for one in told for header in _anthropic(one, now)))


def duration_text(ms: int) -> str:
    """`250ms`, `1s`, `6m0s`: a duration as OpenAI writes it."""
    if ms < 1000:
        return f"{ms}ms"
    seconds = -(-ms // 1000)
    return f"{seconds}s" if seconds < 60 else f"{seconds // 60}m{seconds % 60}s"


def _openai(told: _Told) -> Headers:
    what, limit, left, reset_ms = told
    return (
        (f"x-ratelimit-limit-{what}".encode(), b"%d" % limit),
        (f"x-ratelimit-remaining-{what}".encode(), b"%d" % left),
        (f"x-ratelimit-reset-{what}".encode(), duration_text(reset_ms).encode()),
    )


def _anthropic(told: _Told, now: datetime) -> Headers:
    what, limit, left, reset_ms = told
    at = now + timedelta(milliseconds=reset_ms)
    return (
        (f"anthropic-ratelimit-{what}-limit".encode(), b"%d" % limit),
        (f"anthropic-ratelimit-{what}-remaining".encode(), b"%d" % left),
        (f"anthropic-ratelimit-{what}-reset".encode(), f"{at:%Y-%m-%dT%H:%M:%SZ}".encode()),
    )
