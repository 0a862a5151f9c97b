"""Errors of tuning.

TuningError
|- SweepInvalid       the sweep file, or a file that it names, cannot be used
|- ResultsUnusable    the file of results cannot be read, or is not one
|- NothingTuned       no setting could be measured
`- SettingFailed      a setting could not be measured: it becomes a row that says why
"""


class TuningError(Exception):
    """Base of all errors of tuning."""


class SweepInvalid(TuningError, ValueError):
    """The sweep cannot be run as it stands; the text says where and why."""


class ResultsUnusable(TuningError, ValueError):
    """The results cannot be read."""


class NothingTuned(TuningError):
    """Every setting failed; the text has the reason of the last."""


class SettingFailed(TuningError):
    """This setting could not be measured. `why` goes into its row."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
