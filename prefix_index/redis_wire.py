"""What goes over the wire to the index in Redis, as data: calls, keys, and how a reply to `match` is read.

A reply names holders by slot, a small number; the table from slots to holders travels only when its version changed.
Each call carries the version its caller knew, and its reply is read with *that* table or the one it brings along, so
replies may overtake each other.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import msgspec

from prefix_index.radix_nodes import RANKS
from prefix_index.types import HASH_BYTES, Chain, Claim, Load, Match

KEY_VERSION = 2
"""Layout of the keys and what their hashes mean; another layout lives beside it under another number."""

SLOTS = 2048
"""Seats of a pool: claims × holders."""

LRU_SPAN = 1 << 42
"""Scores in the order of use are slot × this + tick."""

TICKS_PER_S = 10_000
TICK_EPOCH_S = 1_767_225_600
"""Ticks count from the start of 2026, UTC."""

MOST_LOAD_TOKENS = (1 << 53) - 1
"""What is told of more: the format ends at 2^64, exact floats here, and a queue of either is one for ever."""

NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, struct.error, msgspec.MsgspecError)
"""What reading something fails with that is not what it should be, here and in redis-py."""

_LETTERS = {claim: claim.value[0] for claim in Claim}
_CLAIMS = {letter: claim for claim, letter in _LETTERS.items()}
_CONFIRMED = RANKS[Claim.CONFIRMED]
_NOBODY = (-1, "")
_DIGITS_TO_TRUTH = bytes.maketrans(b"01", b"\x00\x01")
_NODE_HEAD = struct.Struct(">8sIBB")
_Word = tuple[str, int, Mapping[str, Load]]


Argument = bytes | str | int


class Call(msgspec.Struct, frozen=True, gc=False):
    """One function call: its name without the library's, how many arguments it has, and these as they are sent."""

    function: str
    arity: int
    packed: bytes
    read_only: bool = False


def call_of(function: str, *args: Argument, read_only: bool = False) -> Call:
    """A call with these arguments."""
    return Call(function, len(args), bulks(*args), read_only)


def bulks(*args: Argument) -> bytes:
    """Arguments as they are sent: each with its length before it."""
    texts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def opening(name: str, keys: Sequence[bytes], arity: int, *, read_only: bool) -> bytes:
    """What calls of one function on the same keys begin with: all but the arguments."""
    command = "FCALL_RO" if read_only else "FCALL"
    return b"*%d\r\n" % (3 + len(keys) + arity) + bulks(command, name, len(keys), *keys)


@dataclass(frozen=True, slots=True)
class Registry:
    """Which slot is which claim of which holder, at one version; `born` changes when Redis lost everything.

    A holder's generation is the same for all its claims; a holder that is absent has nothing.
    """

    version: bytes = b""
    born: bytes = b""
    slots: Mapping[int, tuple[Claim, str]] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    seats: Sequence[tuple[int, str]] = field(init=False, repr=False, compare=False)
    """By slot: which claim, counted in the order of `Claim`, and whose. For reading many of them at once."""

    def __post_init__(self) -> None:
        seats = [_NOBODY] * (max(self.slots, default=-1) + 1)
        for slot, (claim, holder) in self.slots.items():
            seats[slot] = (RANKS[claim], holder)
        object.__setattr__(self, "seats", seats)


@dataclass(frozen=True, slots=True)
class MatchReply:
    """A reply to `match`, read."""

    match: Match[str]
    registry: Registry
    now_us: int
    news: Sequence[_Word]
    """Replica, time of its beat in µs, its loads: those that the caller had not heard of."""
    unreadable: int = 0
    """Replicas whose loads are not of our format."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """One node as Redis keeps it: `prev` is the hash before it (zeros for a root), `edge` all its hashes, packed."""

    name: bytes
    prev: bytes
    used_s: int
    """Unix time in seconds of its last use by anybody, up to 8 s too old."""
    slots: frozenset[int]
    edge: bytes

    def __len__(self) -> int:
        """Blocks on the edge."""
        return len(self.edge) // HASH_BYTES

    @property
    def parent_end(self) -> bytes | None:
        """The last hash of its parent; None for a root."""
        return self.prev if any(self.prev) else None


def letters(claims: Iterable[Claim]) -> str:
    """How the functions call these claims."""
    return "".join(_LETTERS[claim] for claim in claims)


def pool_tag(pool: str) -> str:
    """What all keys of a pool begin with: one slot of a cluster."""
    return f"{{pg:{KEY_VERSION}:{pool}}}"


def pool_keys(pool: str) -> tuple[bytes, ...]:
    """All keys of a pool, in the order in which the functions expect them; one slot of a cluster."""
    tag = pool_tag(pool)
    return tuple(f"{tag}:{name}".encode() for name in ("nodes", "lru", "kids", "reg", "who", "beats", "loads"))


def match_call(chain: Chain, registry: Registry, beat_us: int) -> Call:
    """Leading runs, and what is newer than `registry` and `beat_us`."""
    hashes, version, beat = chain.hashes, registry.version, b"%d" % beat_us
    return Call(
        "match",
        3,
        b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(hashes), hashes, len(version), version, len(beat), beat),
        read_only=True,
    )


def pack_loads(loads: Mapping[str, Load]) -> bytes:
    """Loads of one replica; holders with nothing outstanding are left out."""
    return msgspec.msgpack.encode(
        {
            holder: (
                load.requests,
                min(load.uncached_tokens, MOST_LOAD_TOKENS),
                min(load.decode_tokens, MOST_LOAD_TOKENS),
            )
            for holder, load in loads.items()
            if load != Load()
        }
    )


def read_match(reply: object, known: Registry) -> MatchReply:
    """Read a reply to a call that carried the version of `known`. O(holders + nodes).

    Raises one of NONSENSE where it is not such a reply. A replica whose loads are not of our format, as another version
    may write them, is left out and counted: what it has outstanding is not known, and all else is.
    """
    version, born, names, now_us, path, walked, cut, news = _as_list(reply)
    registry = known if version == known.version else _read_registry(_as_bytes(version), _as_bytes(born), names)
    at_us = int(_as_bytes(now_us))
    match = _read_path(_as_list(path), registry.seats, at_us / 1_000_000, _as_int(walked), truncated=cut == 1)
    read, unreadable = _read_news(_as_list(news))
    return MatchReply(match, registry, at_us, read, unreadable)


def read_seat(entry: bytes) -> tuple[int, Claim, str]:
    """Generation, claim and holder of one entry of `who`. Raises ValueError or LookupError for nonsense."""
    generation, _, name = entry.decode().partition(":")
    return int(generation), _CLAIMS[name[0]], name[1:]


def read_node(name: bytes, value: bytes) -> StoredNode:
    """Read a field of `nodes`. O(bytes). Raises struct.error or ValueError for nonsense."""
    prev, used_s, skipped, size = _NODE_HEAD.unpack_from(value)
    head = _NODE_HEAD.size + size + 1
    bits = int.from_bytes(value[_NODE_HEAD.size : head], "little") << 8 * skipped
    return StoredNode(
        name, prev, used_s, frozenset(compress(range(8 * (skipped + size + 1)), _truths(bits))), name + value[head:]
    )


def _read_registry(version: bytes, born: bytes, names: object) -> Registry:
    slots: dict[int, tuple[Claim, str]] = {}
    generations: dict[str, int] = {}
    for slot, entry in _pairs(_as_list(names)):
        generation, claim, holder = read_seat(_as_bytes(entry))
        number = int(_as_bytes(slot))
        if not 0 <= number < SLOTS:
            raise ValueError(f"there is no slot {number}")
        slots[number] = (claim, holder)
        generations[holder] = generation
    return Registry(version, born, slots, generations)


def _read_path(
    path: Sequence[object], seats: Sequence[tuple[int, str]], now_s: float, walked: int, *, truncated: bool
) -> Match[str]:
    """Bitmaps along the path, each with the block where it ends and its last use; deepest first, so that each seat is
    met once."""
    speculative: dict[str, int] = {}
    confirmed: dict[str, int] = {}
    host: dict[str, int] = {}
    disk: dict[str, int] = {}
    runs = (speculative, confirmed, host, disk)
    ages_s: dict[str, float] = {}
    seen = 0
    if len(path) % 3:
        raise ValueError("a path is made of bits, ends and seconds")
    for at in range(len(path) - 3, -1, -3):
        bits, end = _as_bytes(path[at]), _as_int(path[at + 1])
        used = _four(path[at + 2])
        present = int.from_bytes(bits[2:], "little") << 8 * bits[0]
        fresh = present & ~seen
        if not fresh:
            continue
        seen |= present
        age_s = max(0.0, now_s - int.from_bytes(used, "big"))
        for rank, holder in compress(seats, _truths(fresh)):
            if rank < 0:
                continue
            runs[rank][holder] = end
            if rank == _CONFIRMED:
                ages_s[holder] = age_s
    return Match(confirmed, {}, walked, truncated, speculative, host, disk, ages_s)


def _truths(bits: int) -> bytes:
    """One byte for each bit, the lowest first: what `compress` selects by."""
    return bin(bits)[:1:-1].encode().translate(_DIGITS_TO_TRUTH)


def _four(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) != 4:
        raise ValueError("four bytes were expected")
    return value


def _read_news(news: Sequence[object]) -> tuple[list[_Word], int]:
    read: list[_Word] = []
    unreadable = 0
    if len(news) % 3:
        raise ValueError("news are made of replicas, beats and loads")
    for at in range(0, len(news), 3):
        try:
            read.append(_read_word(news[at : at + 3]))
        except NONSENSE:
            unreadable += 1
    return read, unreadable


def _read_word(word: Sequence[object]) -> _Word:
    replica, beat_us, packed = map(_as_bytes, word)
    loads = msgspec.msgpack.decode(packed, type=dict[str, tuple[int, int, int]]) if packed else {}
    return replica.decode(), int(beat_us), {holder: Load(*parts) for holder, parts in loads.items()}


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
