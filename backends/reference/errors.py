"""Errors of the reference engine.

ReferenceEngineError
|- ModelUnavailable     the weights are not installed, or a directory lacks a file
|- ModelUnsupported     the files are there, but describe an architecture this engine does not compute
|- CacheTooLarge        the machine has no memory for a KV cache of that size
|- KernelMissing        this torch cannot multiply by weights of the form that is asked for
|- EventsUnavailable    an address to publish cache events at cannot be used
|- TransferFailed       what another engine computed of a prompt could not be had, or is another's
|- NoNumbers            the model makes nothing of a prompt that a token could be drawn from
|- EngineStopped        the engine was stopped, or its step failed; every open request ends with this
`- RequestRefused       the client's fault; carries the HTTP status and the OpenAI error fields
"""


class ReferenceEngineError(Exception):
    """Base of all errors of the reference engine."""


class ModelUnavailable(ReferenceEngineError):
    """A model's files could not be found; `what` names the missing thing, `hint` what would help."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} not found; {hint}")
        self.what = what
        self.hint = hint


class ModelUnsupported(ReferenceEngineError):
    """The model's `config.json` asks for something this engine does not compute."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(f"this engine computes plain Llama decoders only; config.json has {field}={value!r}")
        self.field = field
        self.value = value


class CacheTooLarge(ReferenceEngineError):
    """No memory for a KV cache of `size_bytes`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"no memory for a KV cache of {size_bytes / 2**30:,.1f} GiB; take fewer --kv-blocks")
        self.size_bytes = size_bytes


class KernelMissing(ReferenceEngineError):
    """This torch has no operator `name`: such operators are not public, and may go or be renamed."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(
            f"torch {version} has no {name}, which weights of this form are multiplied with; install the torch that "
            "pyproject.toml pins, or take other --weights"
        )
        self.name = name


class EventsUnavailable(ReferenceEngineError):
    """Events of the cache cannot be published at `url`: it is taken, or not an address."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot publish cache events at {url}: {reason}")
        self.url = url
        self.reason = reason


class EngineStopped(ReferenceEngineError):
    """The engine no longer steps; `why` is "stopped" or the name of the error that ended it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the engine no longer runs: {why}")
        self.why = why


class TransferFailed(ReferenceEngineError):
    """What another engine computed of a prompt could not be had, or is not of this prompt and model."""


class NoNumbers(ReferenceEngineError):
    """Logits with NaN or infinity: weights, or what is cached of the prompt, are no numbers, or too large."""

    def __init__(self) -> None:
        super().__init__(
            "logits are not finite: the model's weights, or what is cached of the prompt, are no numbers or too large"
        )


class RequestRefused(ReferenceEngineError):
    """A request that cannot be served as asked.

    `status` is the HTTP status, `kind` the `type` of the OpenAI error object, `param` the field at fault.
    """

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, kind: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.kind = kind or ("NotFoundError" if status == 404 else "BadRequestError")
