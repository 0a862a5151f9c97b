"""The nouns of KV events: what an engine says of its own cache, and what that asks of the index.

    frames --Message--> payload --decode_batch--> Batch of events --Mirror.apply--> changes of the index

An engine names its blocks by hashes of its own, which mean nothing outside of one process: only the token ids that come
with them do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from prefix_index.errors import MalformedBatch
from prefix_index.types import Chain, Claim, TokenIds

SEQUENCE_BYTES = 8

END_OF_REPLAY = 2**64 - 1
"""The sequence number (−1) of the message that ends a replay."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks of one prompt, in order, entered a cache.

    `hashes` are the engine's names of the blocks, unsigned 64 bits; `parent` is the block before the first of them,
    None where that is the first of a prompt. `tokens` are the token ids of all blocks, `block_size` each. `adapter`
    is the LoRA adapter (`#3` where the engine gives its number alone), `salt` what the request isolated its cache
    with: told with the first block of a prompt only. `has_media` says of each block whether it holds something that
    is not text; None where none does. `group` is the group of layers, `full` whether those layers need every block
    before the one that they compute (full and MLA attention, and where nothing is said): other groups (sliding
    window, Mamba) are no evidence of a hit.
    """

    hashes: tuple[int, ...]
    parent: int | None
    tokens: TokenIds
    block_size: int
    adapter: str | None = None
    salt: str | None = None
    claim: Claim = Claim.CONFIRMED
    has_media: tuple[bool, ...] | None = None
    group: int | None = None
    full: bool = True


@dataclass(frozen=True, slots=True)
class Removed:
    """One copy of each of these blocks left the memory that `claim` stands for; None: they left all memories."""

    hashes: tuple[int, ...]
    claim: Claim | None = Claim.CONFIRMED
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A block went from one memory to another (TensorRT-LLM: `updated`)."""

    hash: int
    before: Claim
    after: Claim


@dataclass(frozen=True, slots=True)
class Cleared:
    """The cache holds nothing any more."""


Event = Stored | Removed | Moved | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one step of an engine, in order.

    `at_s` is the engine's wall clock. `rank` is the data-parallel rank, None where the payload does not say. `skipped`
    counts events that are not understood: of an unknown kind, or with fields that contradict each other.
    """

    at_s: float
    events: tuple[Event, ...]
    rank: int | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class PolledBatch:
    """Events of one rank with consecutive ids `first` to `last` from one answer of TensorRT-LLM; as `Batch` else."""

    first: int
    last: int
    events: tuple[Event, ...]
    rank: int | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a publisher: `sequence` counts from 0 in each process, `payload` is for `decode_batch`."""

    topic: bytes
    sequence: int
    payload: bytes

    @classmethod
    def from_frames(cls, frames: Sequence[bytes]) -> "Message":
        """The message of a SUB socket: topic, sequence (8 bytes big-endian), payload. Raises MalformedBatch."""
        if len(frames) != 3:
            raise MalformedBatch(f"a message has 3 frames, not {len(frames)}")
        topic, sequence, payload = frames
        if len(sequence) != SEQUENCE_BYTES:
            raise MalformedBatch(f"a sequence number has {SEQUENCE_BYTES} bytes, not {len(sequence)}")
        return cls(topic, int.from_bytes(sequence, "big"), payload)

    @classmethod
    def from_replay(cls, frames: Sequence[bytes]) -> "Message | None":
        """The message of a DEALER socket that asked for a replay; None at its end. Raises MalformedBatch.

        Behind an empty delimiter stand topic, sequence and payload; up to vLLM 0.25 and SGLang 0.5.21 no topic.
        """
        rest = list(frames[1:] if frames and not frames[0] else frames)
        message = cls.from_frames([b"", *rest] if len(rest) == 2 else rest)
        return None if message.sequence == END_OF_REPLAY else message


@dataclass(frozen=True, slots=True)
class Observe:
    """The cache has all of `chain`, reachable as `claim` says."""

    chain: Chain
    claim: Claim


@dataclass(frozen=True, slots=True)
class Forget:
    """The cache no longer has `chain[from_block]`, nor anything after it on any branch, as far as `claim` goes."""

    chain: Chain
    from_block: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class Clear:
    """The cache has nothing: all claims of its holder end."""


Change = Observe | Forget | Clear
