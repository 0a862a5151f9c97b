"""The dashboard's own files, out of the package: read once, known by name, each with its hash.

Who asks gives a name that is looked up among those that there are: no path is ever made of it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".ico": b"image/x-icon",
    ".json": b"application/json",
    ".woff2": b"font/woff2",
    ".txt": b"text/plain; charset=utf-8",
}
"""What a browser is told; a file of another kind is not served."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file; `etag` is of its content."""

    content: bytes
    content_type: bytes
    etag: bytes


class StaticFiles:
    """The files under a folder, by their path below it. Read when made: O(bytes)."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.suffix in _TYPES and path.is_file() and not path.is_symlink()
        }

    def find(self, name: str) -> StaticFile | None:
        """A file by its name, as `app.js` or `charts/line.js`."""
        return self._files.get(name)

    @property
    def names(self) -> list[str]:
        """All there are."""
        return list(self._files)


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, _TYPES[path.suffix], b'"%b"' % hashlib.sha256(content).hexdigest()[:32].encode())
