"""Files of requests, line by line, compressed or plain."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.sim.loads.errors import WorkloadInvalid

GZIP_MAGIC = b"\x1f\x8b"

R = TypeVar("R")


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1; told by its first bytes whether the file is gzip.

    Reads as it goes: memory of one line. Raises WorkloadInvalid for a file that is missing, cut off or has no lines.
    """
    some = False
    try:
        with path.open("rb") as raw:
            compressed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        with gzip.open(path) if compressed else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line := line.strip():
                    some = True
                    yield number, line
    except (OSError, EOFError, zlib.error) as e:
        raise WorkloadInvalid(path, None, f"cannot be read: {e}") from e
    if not some:
        raise WorkloadInvalid(path, None, "is empty: no request in it")


def rows_of(path: Path, decoder: msgspec.json.Decoder[R]) -> Iterator[tuple[int, R]]:
    """The lines as objects. Fields that `decoder` does not know are passed over.

    Raises WorkloadInvalid, with the line, for what is no JSON, lacks a field, or has a field out of its range.
    """
    for number, line in lines_of(path):
        try:
            yield number, decoder.decode(line)
        except msgspec.ValidationError as e:
            raise WorkloadInvalid(path, number, f"{e}") from e
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise WorkloadInvalid(path, number, f"is no JSON object: {e}") from e
