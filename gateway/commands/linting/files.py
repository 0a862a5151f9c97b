"""Files for `prefixgate lint`: folders walked, texts read, within bounds; what is not read is named."""

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prefix_index.lint import Asked, Read, Settings, Skipped, is_candidate, read_file

MiB = 1024 * 1024
IGNORED_FOLDERS: Final = frozenset(
    {
        *("node_modules", "__pycache__", "site-packages", "dist-packages", "venv", "env", "build", "dist", "target"),
        *("vendor", "third_party", "coverage", "htmlcov"),
    }
)
"""Folders that a walk leaves out, unless it begins in them; those that begin with a point too."""
LARGEST_FOUND_BYTES: Final = 2 * MiB
"""A larger file that a walk finds is data, not a source."""
LARGEST_NAMED_BYTES: Final = 256 * MiB


@dataclass(frozen=True, slots=True)
class Walk:
    """What is read: paths as they were given, what is left out, and by when (by `clock`) it has to be done."""

    paths: Sequence[Path]
    settings: Settings
    clock: Callable[[], float]
    ends_s: float


def read_all(walk: Walk, asked: Asked) -> Iterator[Read]:
    """What each file comes to, in the order of paths and names. Never raises for a file."""
    late = 0
    for path, is_named in _files(walk):
        if walk.clock() > walk.ends_s:
            late += 1
            continue
        yield _read(path, asked, is_named=is_named)
    if late:
        yield Read(skipped=[Skipped(".", f"{late} files were not read: the time is up (--time-limit-s)")])


def _files(walk: Walk) -> Iterator[tuple[Path, bool]]:
    for path in walk.paths:
        if not path.is_dir():
            yield path, True
            continue
        for folder, folders, names in os.walk(path):
            inside = Path(folder)
            folders[:] = sorted(name for name in folders if _is_walked(name) and not _is_excluded(inside / name, walk))
            for name in sorted(names):
                found = inside / name
                if is_candidate(found.as_posix()) and not _is_excluded(found, walk):
                    yield found, False


def _is_walked(name: str) -> bool:
    return not name.startswith(".") and name not in IGNORED_FOLDERS and not name.endswith(".egg-info")


def _is_excluded(path: Path, walk: Walk) -> bool:
    return bool(walk.settings.exclude) and walk.settings.excludes(path.as_posix())


def _read(path: Path, asked: Asked, *, is_named: bool) -> Read:
    largest = LARGEST_NAMED_BYTES if is_named else LARGEST_FOUND_BYTES
    try:
        if not path.is_file():
            return _skipped(path, "no file")
        data = _bytes(path, largest)
        if data is None:
            return _skipped(path, f"more than {largest // MiB} MiB")
        text = data.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        return _skipped(path, str(getattr(error, "strerror", None) or error))
    except UnicodeDecodeError:
        return _skipped(path, "no UTF-8")
    return read_file(path.as_posix(), text, asked, is_named=is_named)


def _bytes(path: Path, largest: int) -> bytes | None:
    """The bytes of a file, unpacked where its name says that it is packed; None where they are too many."""
    with path.open("rb") as packed:
        data = (gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed).read(largest + 1)
    return None if len(data) > largest else bytes(data)


def _skipped(path: Path, why: str) -> Read:
    return Read(skipped=[Skipped(path.as_posix(), why)])
