"""A file is there as a whole or not at all, whenever the power goes.

text ──> .name.xxxx beside it, on the disk ──replace──> name        an old one is there until the new one is
                                           ──link─────> name        only where there is none: of two at once, one
                                               └─ then the folder is on the disk too
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str, *, is_new: bool = False) -> None:
    """Put `text`, in UTF-8, at `path`, readable by its owner alone.

    Raises `FileExistsError` where `is_new` and something is there, and `OSError`; then nothing has changed.
    """
    folder = path.absolute().parent
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _take_the_name(path, beside)
        else:
            beside.replace(path)
    finally:
        with suppress(FileNotFoundError):  # it has the other name by now
            beside.unlink()
    listing = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(listing)
    finally:
        os.close(listing)


def _take_the_name(path: Path, beside: Path) -> None:
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: then two at once are not told apart
        if path.exists():
            raise FileExistsError(str(path)) from None
        beside.replace(path)
