"""What engines answer, as far as it is read; whatever is not of this form is no answer. Pure.

A decoder for each route: what one of them has no use for may be of any form. NaN and infinities, which some engines
write, are not JSON.
"""

import re
from typing import Final

import msgspec

_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Weights = list[float | None]


class Echo(msgspec.Struct):
    """Of `echo`: the probability of each token of prompt and answer, None of the first."""

    token_logprobs: Weights | None = None


class Echoed(msgspec.Struct):
    """A choice with an echo."""

    logprobs: Echo | None = None


class Usage(msgspec.Struct):
    """What was counted."""

    prompt_tokens: int | None = None


class EchoPage(msgspec.Struct):
    """Of `/v1/completions` with `echo`."""

    choices: list[Echoed] = []
    usage: Usage | None = None


class Weight(msgspec.Struct):
    """Of one token."""

    logprob: float | None = None


class OfPrompt(msgspec.Struct):
    """A choice with the probabilities of its prompt, None of the first token; by the token's number."""

    prompt_logprobs: list[dict[str, Weight] | None] | None = None


class PromptPage(msgspec.Struct):
    """Of `/v1/completions` with `prompt_logprobs`."""

    choices: list[OfPrompt] = []


class Forced(msgspec.Struct):
    """A token that was drawn."""

    id: int | None = None
    logprob: float | None = None


class ForcedPage(msgspec.Struct):
    """Of llama.cpp's `/completion`."""

    completion_probabilities: list[Forced] = []


class TokenPage(msgspec.Struct):
    """Of `/tokenize`."""

    tokens: list[int] | None = None


class Part(msgspec.Struct):
    """Of content in parts."""

    text: str = ""


class Message(msgspec.Struct):
    """An answer."""

    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())


class Answered(msgspec.Struct):
    """A choice of a chat."""

    message: Message
    token_ids: list[int] | None = None


class ChatPage(msgspec.Struct):
    """Of `/v1/chat/completions`."""

    choices: list[Answered] = []


def legible(said: str) -> str:
    """What a program said, for a terminal: without colours and whatever else would steer it."""
    return "".join(letter if letter.isprintable() else " " for letter in _COLOURS.sub("", said)).strip()
