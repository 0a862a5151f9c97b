"""One process owns a ledger file. The lock dies with the process, however it dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from billing.errors import LedgerUnavailable

_PRIVATE = 0o600


@contextmanager
def owned(path: Path, key: str = "ledger.path") -> Iterator[None]:
    """Hold the lock beside `path` while inside; `key` of the configuration names it.

    Raises `LedgerUnavailable` where another holds it, or at once. The lock is on the open file, so a second opening in
    the same process is refused too. The file stays: removing it would let two processes hold locks on two files of one
    name.
    """
    real = path.resolve()  # a link to it is no other ledger
    lock = real.with_name(real.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        raise LedgerUnavailable(
            f"no lock file beside {path}: {error}; the folder must exist and be writable"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LedgerUnavailable(
                f"{path} is owned by another gateway (process {owner}); give each its own `{key}`"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
