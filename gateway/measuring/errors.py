"""Errors of measuring.

MeasuringError
|- LoadUnusable        what was asked for is no load: levels, lengths or a corpus that cannot be
|- AddressRefuses      the address answers, but not a request like ours
`- NothingMeasured     no request was answered, or none was recorded in the period
"""


class MeasuringError(Exception):
    """Base of all errors of measuring."""


class LoadUnusable(MeasuringError, ValueError):
    """The load that was asked for is none; the text says why."""


class AddressRefuses(MeasuringError):
    """The address did not answer a first request as a model server does."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url} cannot be measured: {why}")
        self.url = url
        self.why = why


class NothingMeasured(MeasuringError):
    """There is nothing to tell of."""
