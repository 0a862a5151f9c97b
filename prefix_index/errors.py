"""Errors of the prefix index.

PrefixIndexError
|- TokenizerUnavailable   the tokenizer's files are missing or unreadable
|- TemplateFailed         the chat template refused the messages (the client's fault) or is broken
`- IndexUnavailable       Redis is away, too slow, or answered nonsense
"""


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


class IndexUnavailable(PrefixIndexError):
    """The shared index did not answer in time; `why` says which way it failed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"shared prefix index unavailable: {why}")
        self.why = why
