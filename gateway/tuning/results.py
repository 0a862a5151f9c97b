"""Results: a file of JSON lines, one for each setting that was tried, written at once; a sweep goes on from it.

{"key": "3f2a...", "setting": {...}, "speed": {...}, "quality": {...}, ...}
{"key": "91bc...", "setting": {...}, "failed": "the engine ended with signal 9", ...}
{"key": "77                         <- a line that was not finished is as if it were not there, and is taken away
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from gateway.tuning.errors import ResultsUnusable
from gateway.tuning.types import FORMAT, Row, Value

_KEY_CHARS: Final = 16
"""64 bits: the rows of a file are thousands at most."""
_ROWS: Final = msgspec.json.Decoder(Row)


def key_of(setting: Mapping[str, Value], depends_on: object) -> str:
    """Names all that the figures of a setting depend on: with another load, command or text they are others."""
    everything = msgspec.json.encode([FORMAT, setting, depends_on], order="sorted")
    return hashlib.sha256(everything).hexdigest()[:_KEY_CHARS]


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Nobody else writes results there meanwhile: of two sweeps at once each would take away what the other had begun.

    Raises `ResultsUnusable` where somebody does, or the file cannot be written. A file system without locks has none.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise ResultsUnusable(f"{path}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsUnusable(
                f"{path}: another sweep writes to it: wait for its end, or name another file with --results"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def read_rows(path: Path) -> dict[str, Row]:
    """Rows by key, of several of one key the last; empty where there is no file. Raises `ResultsUnusable`."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ResultsUnusable(f"{path}: {error.strerror}") from None
    *lines, _unfinished = text.split(b"\n")
    rows: dict[str, Row] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = _ROWS.decode(line)
        except msgspec.DecodeError as error:
            raise ResultsUnusable(f"{path}, line {number}: no result of a setting: {error}") from None
        rows[row.key] = row
    return rows


def append_row(path: Path, row: Row) -> None:
    """Put a row on the disk, in place of an unfinished one at the end. Raises `ResultsUnusable`."""
    try:
        with path.open("a+b") as file:
            file.truncate(_whole_bytes(path))
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ResultsUnusable(f"{path}: {error.strerror}") from None


def _whole_bytes(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1
