"""What goes over the wire to the index in Redis, as data: calls, keys, and how a reply to `match` is read.

A reply names holders by slot, a small number; the table from slots to holders travels only when its version changed.
Each call carries the version its caller knew, and its reply is read with *that* table or the one it brings along, so
replies may overtake each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from prefix_index.types import Chain, Load, Match

KEY_VERSION = 1
"""Layout of the keys and what their hashes mean; another layout lives beside it under another number."""


@dataclass(frozen=True, slots=True)
class Call:
    """One function call: its name without the library's, and its arguments."""

    function: str
    args: tuple[bytes | str | int, ...]
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Registry:
    """Which slot is which generation of which holder, at one version; `born` changes when Redis lost everything."""

    version: bytes = b""
    born: bytes = b""
    slots: Mapping[int, str] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatchReply:
    """A reply to `match`, read."""

    match: Match[str]
    registry: Registry
    now_us: int
    news: Sequence[tuple[str, int, Mapping[str, Load]]]
    """Replica, time of its beat in µs, its loads: those that the caller had not heard of."""


def pool_tag(pool: str) -> str:
    """What all keys of a pool begin with: one slot of a cluster."""
    return f"{{pg:{KEY_VERSION}:{pool}}}"


def pool_keys(pool: str) -> tuple[bytes, ...]:
    """All keys of a pool, in the order in which the functions expect them; one slot of a cluster."""
    tag = pool_tag(pool)
    return tuple(f"{tag}:{name}".encode() for name in ("nodes", "lru", "kids", "reg", "who", "beats", "loads"))


def match_call(chain: Chain, registry: Registry, beat_us: int) -> Call:
    """Leading runs, and what is newer than `registry` and `beat_us`."""
    return Call("match", (chain.hashes, registry.version, beat_us), read_only=True)


def pack_loads(loads: Mapping[str, Load]) -> bytes:
    """Loads of one replica; holders with nothing outstanding are left out."""
    return msgspec.msgpack.encode(
        {
            holder: (load.requests, load.uncached_tokens, load.decode_tokens)
            for holder, load in loads.items()
            if load != Load()
        }
    )


def read_match(reply: object, known: Registry) -> MatchReply:
    """Read a reply to a call that carried the version of `known`. O(holders + nodes).

    Raises ValueError, TypeError, LookupError or msgspec.MsgspecError where it is not such a reply.
    """
    version, born, names, now_us, path, walked, cut, news = _as_list(reply)
    registry = known if version == known.version else _read_registry(_as_bytes(version), _as_bytes(born), names)
    match = Match(
        blocks=_read_path(_as_list(path), registry.slots),
        walked_blocks=_as_int(walked),
        truncated=cut == 1,
    )
    return MatchReply(match, registry, int(_as_bytes(now_us)), _read_news(_as_list(news)))


def _read_registry(version: bytes, born: bytes, names: object) -> Registry:
    slots: dict[int, str] = {}
    generations: dict[str, int] = {}
    for slot, entry in _pairs(_as_list(names)):
        generation, _, holder = _as_bytes(entry).decode().partition(":")
        slots[int(_as_bytes(slot))] = holder
        generations[holder] = int(generation)
    return Registry(version, born, slots, generations)


def _read_path(path: Sequence[object], slots: Mapping[int, str]) -> dict[str, int]:
    """Bitmaps along the path, each with the block where it ends; deepest first, so each holder is met once."""
    blocks: dict[str, int] = {}
    seen = 0
    for bits, end in reversed(list(_pairs(path))):
        present = int.from_bytes(_as_bytes(bits), "little")
        fresh = present & ~seen
        seen |= present
        while fresh:
            lowest = fresh & -fresh
            holder = slots.get(lowest.bit_length() - 1)
            if holder is not None:
                blocks[holder] = _as_int(end)
            fresh ^= lowest
    return blocks


def _read_news(news: Sequence[object]) -> list[tuple[str, int, Mapping[str, Load]]]:
    read: list[tuple[str, int, Mapping[str, Load]]] = []
    for at in range(0, len(news), 3):
        replica, beat_us, packed = (_as_bytes(part) for part in news[at : at + 3])
        loads = msgspec.msgpack.decode(packed, type=dict[str, tuple[int, int, int]]) if packed else {}
        read.append((replica.decode(), int(beat_us), {holder: Load(*parts) for holder, parts in loads.items()}))
    return read


def _pairs(flat: Sequence[object]) -> Iterator[tuple[object, object]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _as_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"a list was expected, not {type(value).__name__}")
    return value


def _as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes were expected, not {type(value).__name__}")
    return value


def _as_int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    return value
