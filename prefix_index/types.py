"""The nouns of the prefix index.

    text --tokens--> TokenIds --blocks--> Chain --index--> Match

A *chain* is the list of block hashes of one prompt; each hash names its block **and everything before it**, so
two prompts share a prefix of k blocks exactly when their chains agree at position k - 1.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NewType, TypeVar

TokenIds = NewType("TokenIds", bytes)
"""Token ids packed as uint32 little-endian, 4 bytes a token: no Python object per token outlives a call."""

TOKEN_BYTES = 4
HASH_BYTES = 8
"""xxh3-64 of a block and all blocks before it, little-endian."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The block hashes of one prompt.

    `hashes` holds 8 bytes little-endian a block, whole blocks only; `prompt_tokens` counts all tokens, the partial
    last block included.
    """

    hashes: bytes
    block_size: int
    prompt_tokens: int

    def __len__(self) -> int:
        """Number of whole blocks."""
        return len(self.hashes) // HASH_BYTES


class Claim(StrEnum):
    """What a holder is said to have of a chain: each claim is a leading run of its own, and a new one each to write."""

    SPECULATIVE = "speculative"
    """A prompt was sent there; the engine has not said anything yet. Short-lived."""
    CONFIRMED = "confirmed"
    """The engine said so, by an answer or a KV event: it lies in the memory that it computes from."""
    HOST = "host"
    """Reachable once blocks are fetched from the host's memory too; includes what is confirmed."""
    DISK = "disk"
    """Reachable once blocks are fetched from disks or other servers too; includes what the host has."""


class DegradedReason(StrEnum):
    """Why the shared index is not in use, and its stand-in in process answers."""

    TIMEOUT = "timeout"
    """Redis did not answer within the deadline."""
    UNREACHABLE = "unreachable"
    """No connection: refused, broken, or not accepted (password, TLS)."""
    REFUSED = "refused"
    """Redis answered with an error: read-only, out of memory, too old for functions, no permission."""
    BAD_ANSWER = "bad_answer"
    """What answered is not our index: another protocol, or a reply of another shape."""


@dataclass(frozen=True, slots=True)
class Load:
    """Work outstanding at one holder, counted from dispatch and released once, summed over the gateway's replicas."""

    requests: int = 0
    uncached_tokens: int = 0
    decode_tokens: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.requests + other.requests,
            self.uncached_tokens + other.uncached_tokens,
            self.decode_tokens + other.decode_tokens,
        )


H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Match(Generic[H]):
    """What the index knows of one chain.

    `blocks` maps each holder with at least one confirmed leading block to the length of its **leading run**, in blocks;
    a holder that is absent holds nothing as far as is known. `speculative`, `host` and `disk` are the same for the
    other claims. `ages_s` says, for the holders in `blocks`, how long ago the end of that run was last used by
    anybody; a holder is absent where that is not known. `loads` are the fresh loads of all endpoints of the pool.
    `walked_blocks` is how far the walk came: less than `len(chain)` either because nobody holds more or because the
    cap on nodes was reached (`truncated`).
    """

    blocks: Mapping[H, int] = field(default_factory=dict)
    loads: Mapping[H, Load] = field(default_factory=dict)
    walked_blocks: int = 0
    truncated: bool = False
    speculative: Mapping[H, int] = field(default_factory=dict)
    host: Mapping[H, int] = field(default_factory=dict)
    disk: Mapping[H, int] = field(default_factory=dict)
    ages_s: Mapping[H, float] = field(default_factory=dict)
