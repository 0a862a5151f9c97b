"""Dialects that some servers do not speak, spoken for them: requests become chats, chat answers become theirs.

    client: messages, responses --chat_form--> chat completions --> a server that speaks nothing else
    client <-- whole | feed, end | refusal  <--  its chat answer, plain or as a stream of chunks

A server that speaks the client's dialect gets the client's bytes, and nothing here touches them; but the chat form of
a request also tells what its prompt is, so it is made of every request, and made as engines make it.
"""

from collections.abc import Mapping
from typing import Protocol


class AnswerTranslator(Protocol):
    """One chat answer on its way back. A translator serves one answer and keeps what its stream has said so far."""

    def whole(self, answer: bytes) -> bytes:
        """A plain chat completion as an answer of the client's dialect. Raises `UpstreamFailed` where it is none."""

    def feed(self, events: bytes) -> bytes:
        """Whole events of a chat stream as events of the client's dialect; may give nothing yet."""

    def end(self, events: bytes) -> bytes:
        """What was held back until the usage was durable (the usage event, `[DONE]`, or less where the stream was cut
        short), and with it everything that ends the answer."""

    def refusal(self, status: int, answer: bytes) -> bytes:
        """An error answer of the chat server, in the client's dialect, with the server's own words."""


class Translation(Protocol):
    """How one dialect is said in chat completions."""

    def chat_form(self, body: Mapping[str, object]) -> dict[str, object]:
        """The body of a chat completion that asks the same, from a decoded body, which is not changed.

        Raises `BadRequest` where the body has a form that no server takes; content that only some servers understand
        passes as it is. Linear in the body.
        """

    def untranslatable(self, body: Mapping[str, object]) -> str | None:
        """The path of the first thing in a body that no chat can say, or that must be said to translate it.

        Such a request is served only where its own dialect is spoken. None where there is nothing of the kind. Linear
        in messages, blocks and tools; never raises, whatever the body holds.
        """

    def translator(self, body: Mapping[str, object]) -> AnswerTranslator:
        """For the answer to the request with this body."""
