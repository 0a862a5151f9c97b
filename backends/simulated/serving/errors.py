"""What a simulated engine does not answer as asked.

Refused             it answers with an error, in its engine's words
ConnectionReset     it says nothing more
"""


class Refused(Exception):
    """A request that the engine answers with an error. `more`: what its error body has beside the usual."""

    def __init__(
        self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None, **more: object
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.more = more


class ConnectionReset(Exception):
    """The connection was cut on purpose; nothing more can be said on it."""
