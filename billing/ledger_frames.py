"""What a gateway's worker and the owner of its ledger say to each other: frames on a stream between two processes.

    worker   --> owner    Records 1 | Records 2 | ...        what came in one turn of the worker's loop is one frame
    owner    --> worker   State | Done 1 | Done 2 | State    done: all records of that frame are durable, or refused

A frame is 4 bytes of length and a MessagePack object. Both ends are one version of this program on one machine, so the
forms have no versions. Costs: a few microseconds a record on either side, and one frame each way for a whole turn.
"""

from collections.abc import Iterator
from struct import Struct

import msgspec

from billing.errors import LedgerUnavailable, RowRefused
from billing.spooled_store import SpoolState
from billing.types import Correction, EngineSample, OpenedRequest, Settlement

_HEAD = Struct("<I")
HEAD_BYTES = _HEAD.size
MOST_FRAME_BYTES = 1 << 28


class FrameInvalid(Exception):
    """The other side sent what is no frame of ours."""


class Records(msgspec.Struct, array_like=True, frozen=True):
    """Records to be made durable, in the order of the fields: no request is settled before it is opened."""

    number: int
    opened: list[OpenedRequest]
    settled: list[Settlement]
    corrected: list[Correction]
    sampled: list[EngineSample]


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """Why a record is not durable; `request_id` where that record alone was refused."""

    why: str
    request_id: str | None

    @classmethod
    def of(cls, error: LedgerUnavailable) -> "Refusal":
        """What became of a record, to be sent."""
        if not isinstance(error, RowRefused):
            return cls(error.why, None)
        return cls(error.why.removeprefix(RowRefused(error.request_id, "").why), error.request_id)

    def error(self) -> LedgerUnavailable:
        """The same, to be raised."""
        if self.request_id is None:
            return LedgerUnavailable(self.why)
        return RowRefused(self.request_id, self.why)


class Done(msgspec.Struct, array_like=True, frozen=True, tag="done"):
    """A frame of records is dealt with; `refused` by the place of a record in it."""

    number: int
    refused: dict[int, Refusal]


class State(msgspec.Struct, array_like=True, frozen=True, tag="state"):
    """How the ledger is: told at the start, about once a second, and when it changes."""

    healthy: bool
    settled_twice: int
    interrupted: int
    spool: SpoolState | None


encode = msgspec.msgpack.Encoder().encode
decode_records = msgspec.msgpack.Decoder(Records).decode
decode_answer = msgspec.msgpack.Decoder(Done | State).decode


def framed(payload: bytes) -> bytes:
    """One frame."""
    return _HEAD.pack(len(payload)) + payload


def length_of(head: bytes | bytearray) -> int:
    """Bytes of the payload behind the first `HEAD_BYTES` of a frame. Raises `FrameInvalid`."""
    (length,) = _HEAD.unpack(head)
    if length > MOST_FRAME_BYTES:
        raise FrameInvalid(f"a frame of {length} bytes")
    return int(length)


class FrameReader:
    """Cuts a stream into the payloads of its frames, however it arrives. O(bytes)."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are whole with these bytes. Raises `FrameInvalid` for a length that no frame has."""
        rest = self._rest
        rest += data
        at = 0
        try:
            while len(rest) - at >= HEAD_BYTES:
                begin = at + HEAD_BYTES
                end = begin + length_of(rest[at:begin])
                if len(rest) < end:
                    return
                payload, at = bytes(rest[begin:end]), end
                yield payload
        finally:
            del rest[:at]
