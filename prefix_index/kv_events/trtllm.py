"""Events of TensorRT-LLM: JSON that is polled, and that each poll takes away.

    POST /kv_cache_events -> [{"event_id": 7, "attention_dp_rank": 0, "window_size": 32768, "data": {"type": ...}}, ...]

`event_id` counts on within a rank, so a lost event shows as a gap; there is no replay. Three things are remembered
between polls:
  - the largest window seen in a `created` event. A model with sliding windows has events for each window; only those of
    the widest say how far a prompt can be reused;
  - how many tokens a block has. The last block of a prompt is stored before it is full, and stored again, under another
    hash, once it is. What is not full is left out;
  - the hashes of those blocks, so that their removal is left out as well: a bounded number, and one that is not
    remembered does no harm, since nobody knows a block of that name.

Blocks on level 0 are in the GPU's memory, on level 1 in the host's, on level 2 on disk. A removal does not say from
where: a block lies on one level at a time, so it leaves all.
"""

import re
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import msgspec

from prefix_index.errors import MalformedBatch
from prefix_index.kv_events.types import Event, Moved, PolledBatch, Removed, Stored
from prefix_index.types import Claim, TokenIds

MAX_PARTIAL_BLOCKS = 1 << 16
"""Partial blocks whose hashes are remembered, by a decoder: there is about one for each prompt that is cached."""

_LEVELS = (Claim.CONFIRMED, Claim.HOST, Claim.DISK)
_HASH_MASK = 2**64 - 1
_HEX_DIGITS_OF_A_HASH = 16
_HEX_DIGITS = re.compile("[0-9a-fA-F]+")

Fields = Mapping[str, object]


class _Contradiction(Exception):
    """An event whose fields do not fit together."""


@dataclass(slots=True)
class _Run:
    """Events of one rank whose ids follow each other, as they are found."""

    first: int
    last: int
    rank: int | None
    events: list[Event] = field(default_factory=list)
    skipped: int = 0


class PollDecoder:
    """The answers of one endpoint, in order. Memory is bounded by `MAX_PARTIAL_BLOCKS`.

    `tokens_per_block` is a setting of the engine and a power of two. Without it the longest block seen so far is taken
    for full if its length can be; one that turns out to have been partial is a shorter block until it goes.
    """

    def __init__(self, tokens_per_block: int | None = None) -> None:
        self._tokens_per_block = tokens_per_block or 1
        self._is_told = tokens_per_block is not None
        self._widest = 0
        self._partial: OrderedDict[tuple[int | None, int], None] = OrderedDict()

    def decode_poll(self, body: bytes) -> tuple[PolledBatch, ...]:
        """The events of one answer by rank and run of ids. O(tokens). Raises MalformedBatch where it is no list."""
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBatch(f"no JSON ({type(error).__name__})") from None
        if not isinstance(answer, list):
            raise MalformedBatch("no list of events")
        runs: list[_Run] = []
        latest: dict[int | None, _Run] = {}
        for entry in answer:
            number = entry.get("event_id") if isinstance(entry, dict) else None
            if not isinstance(number, int):
                raise MalformedBatch("an event without an id")
            rank = entry.get("attention_dp_rank")
            rank = rank if isinstance(rank, int) else None
            run = latest.get(rank)
            if run is None or number != run.last + 1:
                run = latest[rank] = _Run(number, number, rank)
                runs.append(run)
            run.last = number
            try:
                run.events += self._events(entry, rank)
            except _Contradiction:
                run.skipped += 1
        return tuple(PolledBatch(run.first, run.last, tuple(run.events), run.rank, run.skipped) for run in runs)

    def _events(self, entry: Fields, rank: int | None) -> list[Event]:
        data, window = entry.get("data"), entry.get("window_size")
        if not isinstance(data, dict):
            raise _Contradiction
        if isinstance(window, int):
            self._widest = max(self._widest, window)
            if window < self._widest:
                return []
        match data.get("type"):
            case "created":
                return []
            case "stored":
                return self._stored(data, rank)
            case "removed":
                return self._removed(data, rank)
            case "updated":
                return _updated(data)
        raise _Contradiction

    def _stored(self, data: Fields, rank: int | None) -> list[Event]:
        blocks = [_block(block) for block in _list(data, "blocks")]
        if not self._is_told:
            self._learn(blocks)
        full = [block for block in blocks if block.tokens == self._tokens_per_block]
        for block in blocks:
            if block.tokens != self._tokens_per_block:
                self._partial[rank, block.hash] = None
        while len(self._partial) > MAX_PARTIAL_BLOCKS:
            self._partial.popitem(last=False)
        parent = data.get("parent_hash")
        before = None if parent is None else _hash(parent)
        name, salt = data.get("lora_name"), data.get("cache_salt")
        events: list[Event] = []
        for claim, group in groupby(full, key=attrgetter("claim")):
            together = list(group)
            has_media = tuple(block.has_media for block in together)
            events.append(
                Stored(
                    hashes=tuple(block.hash for block in together),
                    parent=before,
                    tokens=TokenIds(b"".join(block.packed for block in together)),
                    block_size=self._tokens_per_block,
                    adapter=name if isinstance(name, str) else None,
                    salt=salt if isinstance(salt, str) and before is None else None,
                    claim=claim,
                    has_media=has_media if any(has_media) else None,
                )
            )
            before = together[-1].hash
        return events

    def _learn(self, blocks: list["_Block"]) -> None:
        for block in blocks:
            if block.tokens & (block.tokens - 1) == 0:
                self._tokens_per_block = max(self._tokens_per_block, block.tokens)

    def _removed(self, data: Fields, rank: int | None) -> list[Event]:
        hashes = [_hash(value) for value in _list(data, "block_hashes")]
        full = tuple(block for block in hashes if (rank, block) not in self._partial)
        for block in hashes:
            self._partial.pop((rank, block), None)
        return [Removed(full, claim=None)] if full else []


@dataclass(frozen=True, slots=True)
class _Block:
    hash: int
    packed: bytes
    tokens: int
    claim: Claim
    has_media: bool


def _block(block: object) -> _Block:
    if not isinstance(block, dict):
        raise _Contradiction
    tokens = [token for token in _list(block, "tokens") if isinstance(token, dict)]
    ids = [token.get("token_id") for token in tokens]
    try:
        packed = struct.pack(f"<{len(ids)}I", *ids)
    except struct.error:
        raise _Contradiction from None
    has_media = bool(block.get("mm_keys")) or any(token.get("token_extra_id") for token in tokens)
    return _Block(_hash(block.get("block_hash")), packed, len(ids), _level(block.get("cache_level")), has_media)


def _updated(data: Fields) -> list[Event]:
    """A change of priority alone moves nothing."""
    level = data.get("cache_level")
    if not isinstance(level, dict):
        return []
    return [Moved(_hash(data.get("block_hash")), _level(level.get("old_value")), _level(level.get("new_value")))]


def _list(fields: Fields, name: str) -> list[object]:
    values = fields.get(name)
    if not isinstance(values, list):
        raise _Contradiction
    return values


def _level(level: object) -> Claim:
    if not isinstance(level, int) or not 0 <= level < len(_LEVELS):
        raise _Contradiction
    return _LEVELS[level]


def _hash(value: object) -> int:
    """The low 64 bits; a whole SHA-256 comes in hexadecimal digits."""
    if isinstance(value, int):
        return value & _HASH_MASK
    if not isinstance(value, str) or not _HEX_DIGITS.fullmatch(value):
        raise _Contradiction
    return int(value[-_HEX_DIGITS_OF_A_HASH:], 16) & _HASH_MASK
