"""Errors of measuring.

MeasuringError
|- LoadUnusable        what was asked for is no load: levels, lengths or a corpus that cannot be
|- PictureUnknown      a picture of a kind that nobody draws
|- AddressRefuses      the address answers, but not a request like ours
`- NothingMeasured     no request was answered, or none was recorded in the period

The first two are also `ValueError`s: whoever asked can mend it.
"""

from collections.abc import Sequence
from pathlib import Path


class MeasuringError(Exception):
    """Base of all errors of measuring."""


class LoadUnusable(MeasuringError, ValueError):
    """The load that was asked for is none; the text says why."""


class PictureUnknown(MeasuringError, ValueError):
    """A file whose suffix names no picture of ours."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: a picture is a file that ends in .svg or .png")
        self.path = path


class AddressRefuses(MeasuringError):
    """The address did not answer a first request as a model server does."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url} cannot be measured: {why}")
        self.url = url
        self.why = why


class NothingMeasured(MeasuringError):
    """There is nothing to tell of: `what`, in words. `notes`: what was seen all the same."""

    def __init__(self, what: str, notes: Sequence[str] = ()) -> None:
        super().__init__("; ".join((what, *notes)))
        self.what = what
        self.notes = tuple(notes)
