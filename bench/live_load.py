"""Loads for real engines: who shares what, how long it is, when it comes. Pure but for the tokenizer that counts.

    shared     group 3's text ................ | own part     a prefix is asked for again by others, own parts never
    control    own text of any length                         nothing is ever asked for again

The same seed gives the same bytes and, at the same rate, the same moments, so that policies are compared on one load.
Texts are words that nobody says: the engines' models need not understand them, and no two loads share a block.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prefix_index.prompt import ModelText, PromptView

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_WORDS: Final = 2000
_SAMPLE_WORDS: Final = 400
_TOKEN_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A load in tokens, about: `groups` texts of `prefix_tokens` that are shared, and own parts of any length within
    `own_tokens`; none are shared where `groups` is 0. Each answer has `output_tokens` exactly."""

    requests: int
    groups: int
    prefix_tokens: int
    own_tokens: tuple[int, int]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """A request ready to be sent; `wait` is how long after the one before it comes, at one request a second."""

    name: str
    body: bytes
    wait: float


class Writer:
    """Writes texts of about so many tokens of one model."""

    def __init__(self, text: ModelText, model: str) -> None:
        dice = random.Random(0)
        self._model = model
        self._words = ["".join(dice.choices(_LETTERS, k=dice.randint(3, 7))) for _ in range(_WORDS)]
        self._text = text
        sample = self._said(dice, _SAMPLE_WORDS)
        self._tokens_a_word = self.count([{"role": "user", "content": sample}]) / _SAMPLE_WORDS

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a prompt."""
        encoding = self._text.begin(PromptView(messages=[dict(message) for message in messages]))
        encoding.compute()
        return len(encoding.finish()) // _TOKEN_BYTES

    def load(self, name: str, shape: Shape, seed: int) -> list[LiveRequest]:
        """The requests of a load in their order."""
        dice = random.Random(f"{name} {seed}")
        shared = [self._said(dice, self._words_of(shape.prefix_tokens)) for _ in range(shape.groups)]
        requests = []
        for number in range(shape.requests):
            own = {"role": "user", "content": self._said(dice, self._words_of(dice.randint(*shape.own_tokens)))}
            messages = [{"role": "system", "content": dice.choice(shared)}, own] if shared else [own]
            requests.append(LiveRequest(f"{name}-{number}", self._body(messages, shape), dice.expovariate(1.0)))
        return requests

    def _said(self, dice: random.Random, words: int) -> str:
        return " ".join(dice.choices(self._words, k=words))

    def _words_of(self, tokens: int) -> int:
        return max(round(tokens / self._tokens_a_word), 1)

    def _body(self, messages: Sequence[Mapping[str, str]], shape: Shape) -> bytes:
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": shape.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body).encode()
