"""Records on the local disk while the ledger is away: a write-ahead file, read back in order.

    00000001.spool   [ owner | record | record | ... ]     full, being read back
    00000002.spool   [ owner | record | ...                being written

A frame is 4 bytes of length, 4 of CRC-32, and the record as MessagePack. `append` returns once its frames are written
(`normal`: the death of the process does not lose them) or flushed (`disk`: nor does a loss of power). What a crash cut
off was never acknowledged, and reading stops before it. A file is removed once all of it is in the ledger; reading it
twice does no harm, since a record that is there already is left as it is.

One process has a folder; the lock dies with it. Costs: bounded by `most_bytes` on the disk, one file's records in
memory while it is read back.
"""

import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import msgspec

from billing.database import Sync
from billing.errors import LedgerUnavailable
from billing.ownership import owned
from billing.types import Correction, EngineSample, OpenedRequest, Settlement
from billing.writer import Record

log = logging.getLogger("billing")

_MiB = 1024 * 1024
SEGMENT_BYTES = 4 * _MiB
_PROBE_BYTES = 64 * 1024
"""Room for some hundred records."""
_PRIVATE_FOLDER = 0o700
_PRIVATE = 0o600
_HEAD = Struct("<II")
_OWNER = "owner"
_KINDS: dict[str, type[Record]] = {
    "opened": OpenedRequest,
    "settled": Settlement,
    "corrected": Correction,
    "sampled": EngineSample,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_encode = msgspec.msgpack.Encoder().encode
_frame = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}


class SpoolFull(LedgerUnavailable):
    """The spool has as many bytes as it may have, or its disk is full."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file read back: who wrote it, and what."""

    path: Path
    owner_id: str
    records: tuple[Record, ...]
    damaged: bool


class Spool:
    """The files of one folder. On one thread."""

    def __init__(self, folder: Path, *, sync: Sync, most_bytes: int) -> None:
        self.records = 0
        """In the files that were written by this process, or read back."""
        self.size_bytes = 0
        self._folder = folder.absolute()
        self._sync = sync
        self._most_bytes = most_bytes
        self._held = ExitStack()
        self._segments: list[Path] = []
        self._file: int | None = None
        self._file_bytes = 0
        self._is_full = False

    @property
    def is_empty(self) -> bool:
        """Whether everything is in the ledger."""
        return not self._segments

    @property
    def has_room(self) -> bool:
        """Whether more may be written, and nothing was refused since there was room. On any thread."""
        return self.size_bytes < self._most_bytes and not self._is_full

    def start(self) -> None:
        """Take the folder, and find what an earlier process left there. Raises `LedgerUnavailable`."""
        try:
            self._folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._held.enter_context(owned(self._folder / "spool", "ledger.spool"))
            self._segments = sorted(self._folder.glob("*.spool"))
            self.size_bytes = sum(path.stat().st_size for path in self._segments)
        except OSError as error:
            raise LedgerUnavailable(f"the spool at {self._folder}: {error.strerror}") from error

    def append(self, records: Sequence[Record], owner_id: str) -> None:
        """Make records survive us. All or none. Raises `SpoolFull`; `ValueError`, `OverflowError` for what is no text
        or number that a ledger takes."""
        frames = b"".join(framed(_NAMES[type(record)], record) for record in records)
        if self.size_bytes + len(frames) > self._most_bytes:
            self._is_full = True
            raise SpoolFull(f"the spool has {self.size_bytes} bytes, and may have {self._most_bytes}")
        try:
            descriptor = self._writable()
            self._write(descriptor, frames if self._file_bytes else framed(_OWNER, owner_id) + frames)
        except OSError as error:
            self._is_full = True
            raise SpoolFull(f"the spool at {self._folder}: {error.strerror}") from error
        self._is_full = False
        self.records += len(records)

    def probe(self) -> None:
        """Where something was refused: see whether there is room again, on the disk too."""
        if not self._is_full or self.size_bytes + _PROBE_BYTES > self._most_bytes:
            return
        path = self._folder / "probe"
        try:
            with path.open("wb", buffering=0) as file:
                self._is_full = file.write(bytes(_PROBE_BYTES)) < _PROBE_BYTES
        except OSError:
            pass
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def oldest(self) -> Segment:
        """The file that was written first, and is no more written to; empty where somebody has removed it. Raises
        `SpoolFull` where it cannot be read."""
        path = self._segments[0]
        if len(self._segments) == 1:
            self._seal()
        try:
            return read_segment(path)
        except FileNotFoundError:
            log.warning("the spool at %s was removed; what waited in it is lost", path)
            return Segment(path, "", (), damaged=False)
        except OSError as error:
            raise SpoolFull(f"the spool at {path}: {error.strerror}") from error

    def forget(self, segment: Segment) -> None:
        """All of it is in the ledger. A damaged file stays, under another name. Raises `SpoolFull`."""
        path = segment.path
        try:
            self.size_bytes -= path.stat().st_size if path.exists() else 0
            if segment.damaged:
                path.rename(self._damaged(path))
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SpoolFull(f"the spool at {path}: {error.strerror}") from error
        self._segments.remove(path)
        self._is_full = False
        self.records = max(0, self.records - len(segment.records))
        if not self._segments:
            self.records = self.size_bytes = 0

    def set_aside(self, record: Record) -> None:
        """Keep a record that the ledger refuses for good, where an operator finds it. Raises `SpoolFull`."""
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self._folder / "refused", flags, _PRIVATE), "wb") as file:
                file.write(framed(_NAMES[type(record)], record))
        except OSError as error:
            raise SpoolFull(f"the spool at {self._folder}: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the folder. What is in it stays for the next start."""
        self._seal()
        self._held.close()

    def _writable(self) -> int:
        """The file being written; a new one where it is full, or where somebody has removed it."""
        if self._file is None or self._file_bytes >= SEGMENT_BYTES or not os.fstat(self._file).st_nlink:
            self._seal()
            self._folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            number = int(self._segments[-1].stem) + 1 if self._segments else 1
            path = self._folder / f"{number:08d}.spool"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
            self._file_bytes = 0
            self._segments.append(path)
            if self._sync == "disk":
                _flush_folder(self._folder)
        return self._file

    def _write(self, descriptor: int, frames: bytes) -> None:
        try:
            left = memoryview(frames)
            while left:
                left = left[os.write(descriptor, left) :]
            if self._sync == "disk":
                os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._file_bytes)  # a part of it must not stand before what comes next
            os.lseek(descriptor, self._file_bytes, os.SEEK_SET)
            raise
        self._file_bytes += len(frames)
        self.size_bytes += len(frames)

    def _damaged(self, path: Path) -> Path:
        """A name that no earlier one has: numbers begin anew whenever the spool was empty."""
        names = (self._folder / f"{path.stem}{again}.damaged" for again in ("", *(f"-{one}" for one in range(2, 1000))))
        return next(name for name in names if not name.exists())

    def _seal(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def framed(name: str, what: object) -> bytes:
    """One frame."""
    payload = _encode((name, what))
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def read_segment(path: Path) -> Segment:
    """The records of a file, as far as they can be read."""
    content = path.read_bytes()
    owner_id = ""
    records: list[Record] = []
    end = unread = 0
    for end, payload in _payloads(content):  # noqa: B007 - used after the loop
        try:
            name, what = _frame(payload)
            if name == _OWNER:
                owner_id = msgspec.msgpack.decode(what, type=str)
            else:
                records.append(_decoders[name].decode(what))
        except (msgspec.MsgspecError, KeyError):  # of another version of this program
            unread += 1
    return Segment(path, owner_id, tuple(records), damaged=unread > 0 or _is_damaged(content[end:]))


def _payloads(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Each payload with where it ends, up to the first that is not whole or not as it was written."""
    at = 0
    while len(content) - at >= _HEAD.size:
        length, checksum = _HEAD.unpack_from(content, at)
        payload = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        at += _HEAD.size + length
        yield at, payload


def _is_damaged(rest: bytes) -> bool:
    """Whether what could not be read is more than a frame that a crash cut off."""
    if len(rest) < _HEAD.size:
        return False
    length, _ = _HEAD.unpack_from(rest)
    return bool(len(rest) >= _HEAD.size + length)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
