"""Errors of the prefix index.

PrefixIndexError
|- TokenizerUnavailable   the tokenizer's files are missing or unreadable
|- TemplateFailed         the chat template refused the messages (the client's fault) or is broken
|- UnsupportedContent     the prompt holds something whose tokens are not known here
|- NothingHeld            nothing of an answer is known to be held for the next turn
|- IndexUnavailable       Redis is away, too slow, or answered nonsense
|- MalformedBatch         what an engine sent as KV events is none
|- EventSourceInvalid     an address of KV events that cannot be used
|- EventsUnavailable      an engine did not answer when it was asked for KV events
|- RedisAddressInvalid    a Redis URL that cannot be used
`- EmbeddedServerFailed   the private server could not be started
"""

from prefix_index.types import DegradedReason


class PrefixIndexError(Exception):
    """Base of all errors of this room."""


class TokenizerUnavailable(PrefixIndexError):
    """The tokenizer of a model could not be loaded; `path` names where it was looked for."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"no tokenizer at {path}: {why}")
        self.path = path
        self.why = why


class TemplateFailed(PrefixIndexError):
    """The chat template raised; `why` is its own message and never holds prompt text of ours."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the chat template refused these messages: {why}")
        self.why = why


class UnsupportedContent(PrefixIndexError):
    """The tokens of a prompt cannot be known here; `kind` says why: a part's type, or one of `Unsupported`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"tokens are not known here: {kind}")
        self.kind = kind


class NothingHeld(PrefixIndexError):
    """Nothing of an answer is known to be held for the next turn; `kind` says why: one of `Unheld`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"nothing of the answer is known to be held: {kind}")
        self.kind = kind


class IndexUnavailable(PrefixIndexError):
    """The shared index did not answer; `reason` says which way it failed, `why` in more words."""

    def __init__(self, why: str, reason: DegradedReason = DegradedReason.UNREACHABLE) -> None:
        super().__init__(f"shared prefix index unavailable: {why}")
        self.why = why
        self.reason = reason


class RedisAddressInvalid(PrefixIndexError, ValueError):
    """The address of Redis cannot be used; the text says why, and never holds a user or a password."""


class MalformedBatch(PrefixIndexError):
    """A message of an engine is no batch of KV events; `why` says what is wrong with it, and never holds any of it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not a batch of KV events: {why}")
        self.why = why


class EmbeddedServerFailed(PrefixIndexError):
    """The private server could not be started; `why` says what would help."""

    def __init__(self, why: str) -> None:
        super().__init__(f"embedded index server: {why}")
        self.why = why


class EventSourceInvalid(PrefixIndexError):
    """An address of KV events cannot be used; `why` says what would help."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"KV events at {url}: {why}")
        self.url = url
        self.why = why


class EventsUnavailable(PrefixIndexError):
    """Who polls an engine for its KV events raises this; `why` says what went wrong."""

    def __init__(self, why: str) -> None:
        super().__init__(f"KV events: {why}")
        self.why = why
