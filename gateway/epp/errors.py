"""What ends a stream.

EppError
├── ProtocolBroken      the gateway in front sent what cannot be made sense of
└── ModeUnsupported     its filter is configured in a way in which nothing can be picked, or shown
"""


class EppError(Exception):
    """Root of this package's errors. The text is for the log and the gRPC status: nothing of a request is in it."""


class ProtocolBroken(EppError):
    """A message that is none, or comes out of order."""


class ModeUnsupported(EppError):
    """`where` names the setting of the filter, the text what would help."""

    def __init__(self, where: str, mode: str, help_text: str) -> None:
        super().__init__(f"{where} {mode} cannot be served: {help_text}")
        self.where = where
        self.mode = mode
