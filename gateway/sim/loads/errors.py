"""Errors of the loads.

WorkloadError
|- WorkloadInvalid   a file of requests that cannot be used, and the line to look at
`- LoadImpossible    numbers asked of a generator or of arrivals that no load can have
"""

from pathlib import Path


class WorkloadError(Exception):
    """Base of all errors of loads."""


class WorkloadInvalid(WorkloadError):
    """A file of requests cannot be used; `line` counts from 1, None where the file as a whole is to blame."""

    def __init__(self, path: Path, line: int | None, why: str) -> None:
        where = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {why}")
        self.path = path
        self.line = line
        self.why = why


class LoadImpossible(WorkloadError, ValueError):
    """A parameter is out of its range: a rate of nothing, a prompt of negative length."""
