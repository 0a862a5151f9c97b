"""Payloads of vLLM and SGLang: one msgpack array of events, which both have written in many ways.

    [time, [event, ...], rank or nil]         no rank before SGLang 0.5.2
    event = ["BlockStored", field, ...]       by position: vLLM to 0.23, SGLang to 0.5.19
          | {"type": "BlockStored", ...}      by name: vLLM from 0.24, SGLang from 0.5.20

Fields were only ever added at the end, so one table of positions reads all versions; a field that is missing is nil,
one that is new is not looked at. An event of an unknown kind, or one that contradicts itself, is counted and left
out: the rest of its batch still stands.

What a block depends on besides its tokens stands in `extra_keys`, one list a block, without names. vLLM writes them
in this order: the name of the adapter, then `[id, offset]` of each medium (up to 0.18 its id alone), then, in the
first block of a prompt, the salt, then the digest of embeddings. So in that block, behind the adapter's name (known
from `lora_name`), the last string is the salt, unless the next block has the same one: media go on, a salt does not.
A version that writes bare ids and one medium that ends with the first block leave a doubt; then the id is taken for a
salt, of which nobody knows a root. All other elements, and kinds that come one day, are media to us: something that
our tokens do not show.

Where a draft model looks one token ahead, SGLang writes pairs `[token, next]` and vLLM adds `lookahead_token_ids`.
The first of each pair is the token itself; what follows the block is not part of our chains. So such a block is taken
for held whatever follows it, and the engine may reuse one block less than was said where prompts part exactly behind
it.

What is not in the events cannot be told: SGLang's salts before 0.5.18, its adapters before 0.5.22.
"""

from collections.abc import Mapping
from struct import error as StructError
from struct import pack

import msgspec

from prefix_index.errors import MalformedBatch
from prefix_index.kv_events.types import Batch, Cleared, Event, Removed, Stored
from prefix_index.types import Claim, TokenIds

_STORED = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
_REMOVED = ("type", "block_hashes", "medium", "group_idx")
_FIELDS = {"BlockStored": _STORED, "BlockRemoved": _REMOVED, "AllBlocksCleared": ("type",)}

_FULL_KINDS = (None, "full_attention", "mla_attention", "sink_full_attention", "unknown")

MAX_EVENTS = 1 << 19
"""In one payload. An engine with blocks of one token tells of each in an event of its own: a prompt, or what makes room
for it, is several hundred thousand at most."""

_HASH_MASK = 2**64 - 1
_TOKEN_MASK = 2**32 - 1

Fields = Mapping[str, object]


class _Contradiction(Exception):
    """An event whose fields do not fit together."""


def decode_batch(payload: bytes) -> Batch:
    """The events of one payload. O(tokens). Raises MalformedBatch where the payload as a whole is no batch."""
    try:
        content = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBatch(f"no msgpack ({type(error).__name__})") from None
    match content:
        case [int() | float() as at_s, list() as events, *rest]:
            pass
        case _:
            raise MalformedBatch("no array of a time and events")
    if len(events) > MAX_EVENTS:
        raise MalformedBatch(f"{len(events)} events at once")
    rank = rest[0] if rest and isinstance(rest[0], int) else None
    decoded: list[Event] = []
    skipped = 0
    for event in events:
        try:
            decoded.append(_event(_fields(event)))
        except _Contradiction:
            skipped += 1
    return Batch(float(at_s), tuple(decoded), rank, skipped)


def _fields(event: object) -> Fields:
    if isinstance(event, dict):
        return event
    if not isinstance(event, list) or not event or not isinstance(event[0], str):
        raise _Contradiction
    names = _FIELDS.get(event[0], ("type",))
    fields = dict(zip(names, event, strict=False))
    # SGLang 0.5.18 and 0.5.19: a salted request's event ends with a map, where vLLM has the adapter's name.
    if isinstance(fields.get("lora_name"), dict):
        fields |= fields.pop("lora_name")
    return fields


def _event(fields: Fields) -> Event:
    match fields.get("type"):
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return Removed(_hashes(fields), _claim(fields), _group(fields))
        case "AllBlocksCleared":
            return Cleared()
    raise _Contradiction


def _stored(fields: Fields) -> Stored:
    hashes = _hashes(fields)
    values, block_size = _tokens(fields), fields.get("block_size")
    if not isinstance(block_size, int) or block_size <= 0 or len(values) != len(hashes) * block_size:
        raise _Contradiction
    parent = fields.get("parent_block_hash")
    salt, has_media = _extra_keys(fields, len(hashes))
    tokens, no_tokens = _packed(values)
    for position in no_tokens:
        has_media[position // block_size] = True
    return Stored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        tokens=tokens,
        block_size=block_size,
        adapter=_adapter(fields),
        salt=salt,
        claim=_claim(fields),
        has_media=tuple(has_media) if any(has_media) else None,
        group=_group(fields),
        full=fields.get("kv_cache_spec_kind") in _FULL_KINDS,
    )


def _hashes(fields: Fields) -> tuple[int, ...]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list):
        raise _Contradiction
    return tuple(map(_hash, hashes))


def _hash(value: object) -> int:
    """The 64 bits that both forms share: SGLang's are signed, vLLM's may be a whole digest."""
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    if isinstance(value, int):
        return value & _HASH_MASK
    raise _Contradiction


def _tokens(fields: Fields) -> list[object]:
    values = fields.get("token_ids")
    if not isinstance(values, list):
        raise _Contradiction
    if values and isinstance(values[0], list):
        return [pair[0] if isinstance(pair, list) and pair else None for pair in values]
    return values


def _packed(values: list[object]) -> tuple[TokenIds, list[int]]:
    """The token ids, and the positions of numbers that are none: SGLang puts hashes of media where those stand."""
    try:
        return TokenIds(pack(f"<{len(values)}I", *values)), []
    except StructError:
        pass
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        raise _Contradiction
    wrong = [position for position, number in enumerate(numbers) if number != number & _TOKEN_MASK]
    return TokenIds(pack(f"<{len(numbers)}I", *(number & _TOKEN_MASK for number in numbers))), wrong


def _adapter(fields: Fields) -> str | None:
    name, number = fields.get("lora_name"), fields.get("lora_id")
    if isinstance(name, str):
        return name
    return f"#{number}" if isinstance(number, int) else None


def _claim(fields: Fields) -> Claim:
    """How a block is reached in its medium; a medium that we do not know is the farthest."""
    medium = fields.get("medium")
    if fields.get("locality") == "REMOTE":
        return Claim.DISK
    if isinstance(medium, str) and medium.startswith("CPU"):
        return Claim.HOST
    return Claim.CONFIRMED if medium is None or medium == "GPU" else Claim.DISK


def _group(fields: Fields) -> int | None:
    group = fields.get("group_idx")
    return group if isinstance(group, int) else None


def _extra_keys(fields: Fields, blocks: int) -> tuple[str | None, list[bool]]:
    """The salt, and of each block whether it depends on what its tokens do not show."""
    given = fields.get("extra_keys")
    adapters = (fields.get("lora_name"), fields.get("lora_id"))
    keys = [_without(adapters, block) for block in given] if isinstance(given, list) else []
    keys = keys[:blocks] + [[] for _ in range(blocks - len(keys))]
    salt = fields.get("cache_salt")
    if fields.get("parent_block_hash") is None and keys:
        strings = [key for key in keys[0] if isinstance(key, str)]
        if strings and not (len(keys) > 1 and strings[-1] in keys[1]):
            salt = strings[-1]
            keys[0].remove(salt)
    return (salt if isinstance(salt, str) else None), [bool(block) for block in keys]


def _without(adapters: tuple[object, object], block: object) -> list[object]:
    """The extra keys of a block behind its adapter, which stands first."""
    keys = list(block) if isinstance(block, list) else []
    return keys[1:] if keys and keys[0] is not None and keys[0] in adapters else keys
