"""The nouns of continuation: what a client has got of an answer, and why nobody goes on with it."""

from dataclasses import dataclass, field
from enum import StrEnum


class NotContinued(StrEnum):
    """Why an answer whose endpoint died is not gone on with elsewhere."""

    BOUND = "bound"
    """It was gone on with as often as the configuration allows."""
    NOBODY_LEFT = "nobody_left"
    """No other endpoint can take it: none is there, all are full for too long, or all failed."""
    REFUSED = "refused"
    """The other endpoint answered with an error, or with no stream."""
    BLAMED = "blamed"
    """The engine ended it for what it was asked (an error of 4xx in the stream): another would as well."""
    DIALECT = "dialect"
    """The endpoint spoke Responses or Messages itself: only streams of chats and completions are gone on with."""
    SEVERAL_CHOICES = "several_choices"
    """More than one answer was asked for."""
    LOGPROBS = "logprobs"
    """Log probabilities were asked for: those of the text so far are of another computation."""
    STRUCTURED_OUTPUT = "structured_output"
    """The output follows a grammar or a schema, which cannot begin in the middle, or is a call by demand."""
    TOOL_CALL = "tool_call"
    """A call of a tool has begun."""
    REASONING = "reasoning"
    """The answer holds thoughts that were told apart from its text: a prompt cannot say them."""
    OTHER_CONTENT = "other_content"
    """The answer holds something else than text: a refusal, sound."""
    ENGINE_ALTERS = "engine_alters"
    """A field makes the engine read another prompt than the request says, or echo it."""
    TOKEN_IDS = "token_ids"  # noqa: S105 - the name of a reason
    """The prompt is token ids, and the engine did not tell those of the text."""
    USAGE_IN_CHUNKS = "usage_in_chunks"
    """The client asked for the usage in each chunk, which would begin anew."""
    SPLIT_CHARACTER = "split_character"
    """The text ends inside a character."""
    TEMPLATE = "template"
    """By the chat template the text would not stand behind the prompt as it was, or might not: where it ends in white
    space and the template is not known here."""
    TORN_EVENT = "torn_event"
    """The client has got a part of an event, which was too long to be held back."""
    TOO_LONG = "too_long"
    """So much text is not kept."""
    UNREADABLE = "unreadable"
    """The stream, or the request, is not what its dialect says."""
    UNCOUNTED = "uncounted"
    """The tokens of the text so far could not be counted: neither the limit nor the bill would be right."""


class CannotContinue(Exception):
    """An answer is not gone on with, and why."""

    def __init__(self, reason: NotContinued) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Said:
    """What the client has got of a chat or a completion, as whole events.

    `opening` is the first chunk's JSON, empty where none came; `role` whether the client knows who speaks; `finished`
    whether it was told why the answer ended. `token_ids` are those of the text, None where not all of them were told.
    """

    text: str = field(default="", repr=False)
    opening: bytes = field(default=b"", repr=False)
    role: bool = False
    finished: bool = False
    token_ids: tuple[int, ...] | None = field(default=(), repr=False)

    def then(self, later: "Said") -> "Said":
        """What the client has got once another endpoint has gone on."""
        known = self.token_ids is not None and later.token_ids is not None
        return Said(
            text=self.text + later.text,
            opening=self.opening or later.opening,
            role=self.role or later.role,
            finished=self.finished or later.finished,
            token_ids=(*(self.token_ids or ()), *(later.token_ids or ())) if known else None,
        )
