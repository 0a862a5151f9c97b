"""Errors of tuning.

TuningError
|- SweepInvalid       the sweep file, or a file that it names, cannot be used
|- ResultsUnusable    the file of results cannot be read, or is not one
|- NothingTuned       no setting could be measured, or none was by now
`- SettingFailed      a setting could not be measured: it becomes a row that says why

The first two are also `ValueError`s: whoever asked can mend it.
"""


class TuningError(Exception):
    """Base of all errors of tuning."""


class SweepInvalid(TuningError, ValueError):
    """The sweep cannot be run as it stands; the text says where and why."""


class ResultsUnusable(TuningError, ValueError):
    """The results cannot be read."""


class NothingTuned(TuningError):
    """There is nothing to show; the text says why."""


class SettingFailed(TuningError):
    """This setting could not be measured. `why` goes into its row."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
