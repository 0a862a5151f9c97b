"""What is left when all requests have ended: reservations, in processes and in Redis, and words where none belong."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec
from redis import Redis
from redis.exceptions import RedisError

from bench.faults.fleet import Fleet
from prefix_index import SharedIndexOptions

_PIECE_BYTES: Final = 1 << 20
_ASK_AGAIN_S: Final = 0.3
_ALIVE_US: Final = round(SharedIndexOptions().stale_after_s * 10**6)
"""Who was silent for longer is counted by nobody."""
_RESERVED: Final = ("in_flight_requests", "in_flight_uncached_tokens")


async def left_over(fleet: Fleet, within_s: float) -> list[str]:
    """What is still reserved once `within_s` have passed without load; returns as soon as it is nothing."""
    until_s = time.monotonic() + within_s
    while True:
        found = [*await _in_processes(fleet), *await asyncio.to_thread(lambda: list(_in_redis(fleet)))]
        if not found or time.monotonic() > until_s:
            return found
        await asyncio.sleep(_ASK_AGAIN_S)


async def _in_processes(fleet: Fleet) -> list[str]:
    found = []
    for name in fleet.gateways:
        try:
            endpoints = await fleet.admin(name, "/admin/endpoints")
        except httpx.HTTPError as error:
            found.append(f"{name} does not say what it holds: {type(error).__name__}")
            continue
        assert isinstance(endpoints, list)
        for one in endpoints:
            held = {what: one[what] for what in _RESERVED if one[what]}
            if held:
                found.append(f"{name} holds {held} at {one['id']}")
    return found


def _in_redis(fleet: Fleet) -> Iterator[str]:
    """Loads of replicas that are alive, and holds of limits that have not been settled nor run out."""
    try:
        with fleet.redis() as client:
            yield from _loads(client)
            yield from _holds(client)
    except RedisError as error:
        yield f"Valkey does not answer: {type(error).__name__}"


def _loads(client: Redis) -> Iterator[str]:
    now_us = _now_us(client)
    for key in _keys(client, "{pg:*}:loads"):
        beats = _fields(client, key.removesuffix(b"loads") + b"beats")
        for replica, packed in _fields(client, key).items():
            if now_us - int(beats.get(replica, 0)) < _ALIVE_US:
                held = msgspec.msgpack.decode(packed, type=dict[str, tuple[int, int, int]])
                if held:
                    yield f"{replica.decode()} tells the others of {held}"


def _holds(client: Redis) -> Iterator[str]:
    now_ms = _now_us(client) // 1000
    for key in _keys(client, "{pgq:*}:holds"):
        for request_id, held in _fields(client, key).items():
            until_ms = client.zscore(key.removesuffix(b"holds") + b"due", request_id)
            if request_id != b"@" and held != b"x" and until_ms is not None and until_ms > now_ms:
                yield f"limits hold for {request_id.decode()}"
    for key in _keys(client, "{pgq:*}:l:*"):
        running = client.zcount(key, f"({now_ms}", "+inf")
        if running:
            yield f"{running} requests count as running in {key.decode()}"


def _keys(client: Redis, match: str) -> list[bytes]:
    return [key if isinstance(key, bytes) else key.encode() for key in client.scan_iter(match=match)]


def _fields(client: Redis, key: bytes) -> dict[bytes, bytes]:
    return {field: value for field, value in client.hgetall(key).items() if isinstance(field, bytes)}  # type: ignore[misc]


def _now_us(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 10**6 + int(micros)


def leaked(home: Path, canary: str, secrets: Sequence[str]) -> list[str]:
    """Files below `home` with the canary in them, and logs with a secret."""
    found = []
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink():
            words = [canary, *secrets] if path.suffix == ".log" else [canary]
            found += [f"{path.relative_to(home)} has {name}" for name in _words_in(path, words)]
    return found


def _words_in(path: Path, words: Iterable[str]) -> list[str]:
    """Which of `words` a file has, by number: they are secrets. O(bytes), a piece at a time."""
    wanted = [word.encode() for word in words]
    overlap = max(map(len, wanted)) - 1
    seen: set[int] = set()
    kept = b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                text = kept + piece
                seen |= {at for at, word in enumerate(wanted) if word in text}
                kept = text[-overlap:]
    except OSError:
        return []
    return ["a prompt" if at == 0 else f"secret {at}" for at in sorted(seen)]
