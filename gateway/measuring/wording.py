"""Requests of a load as bodies: names of blocks become words, so that equal prefixes are equal texts. Pure.

    chain of a request   [ 17 ][ 18 ][ 902 ] rest          a block of one name at one place is always the same words
    text                 "lo ma ..." "..." "..." "..."     the rest is of this request alone

How many tokens a word makes is the model's affair; `probing` finds it out from the usage of two answers. The words are
syllables that mean nothing. Every level has a salt, so that none finds the caches of one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random
from typing import Final

import msgspec

from gateway.sim.types import SimRequest
from prefix_index import HASH_BYTES

_SYLLABLES: Final = tuple(a + b for a, b in product("bdfghklmnprstvz", "aeiou"))
_WORDS: Final = tuple(a + b for a, b in product(_SYLLABLES, _SYLLABLES[::4]))
_KEPT_BLOCKS: Final = 1 << 14
"""Shared blocks whose words are kept: a few hundred bytes each."""


@dataclass(frozen=True, slots=True)
class WordTokens:
    """Tokens of a prompt = `fixed` (the template around it) + `per_word` × its words."""

    per_word: float = 1.0
    fixed: float = 0.0

    def words(self, tokens: float) -> int:
        """Words of so many tokens, the template's not counted."""
        return max(round(tokens / self.per_word), 0)


@dataclass(frozen=True, slots=True)
class Wording:
    """Writes bodies for one model. `ignore_eos`: answers have the length that is asked for, where the engine can."""

    model: str
    word_tokens: WordTokens = WordTokens()
    ignore_eos: bool = True

    def body(self, request: SimRequest, salt: str) -> bytes:
        """Of one request of a load. O(tokens)."""
        return self.body_of(self.text(request, salt), request.output_tokens)

    def text(self, request: SimRequest, salt: str) -> str:
        """The prompt: as long as the load has it, less the template, which is the model's."""
        chain, words_of = request.chain, self.word_tokens.words
        names = memoryview(chain.hashes).cast("Q") if len(chain.hashes) >= HASH_BYTES else ()
        count = words_of(max(chain.prompt_tokens - self.word_tokens.fixed, 1))
        words: list[str] = []
        for place, name in enumerate(names):
            # Where a block begins and ends is a matter of its place, so that two prompts agree in all before.
            size = words_of((place + 1) * chain.block_size) - words_of(place * chain.block_size)
            words.extend(_block(f"{salt} {name}", size))
        words.extend(_drawn(f"{salt} rest {request.number}", max(count - len(words), 0)))
        return " ".join(words[: max(count, 1)])

    def body_of(self, text: str, output_tokens: int) -> bytes:
        """A chat of one message, whose answer has so many tokens, or at most."""
        return self.chat([{"role": "user", "content": text}], output_tokens)

    def chat(self, messages: Sequence[object], output_tokens: int) -> bytes:
        """A chat of these messages."""
        body: dict[str, object] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max(output_tokens, 1),
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            body["ignore_eos"] = True
        return msgspec.json.encode(body)


def _drawn(seed: str, count: int) -> list[str]:
    return Random(seed).choices(_WORDS, k=count) if count else []  # noqa: S311 -- words are no secret


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(seed: str, count: int) -> tuple[str, ...]:
    return tuple(_drawn(seed, count))
