"""What a simulated engine answers: text that follows from the prompt, and that shows where it stands.

    prompt ──digest──> 3fa9c1        answer: ~3fa9c1.0~3fa9c1.1~3fa9c1.2 ...

Token k of an answer is `~<digest of the prompt's token ids>.<k>`: a token that is lost, doubled, or belongs to another
prompt is seen by looking at the text alone, and every engine answers a prompt alike. An answer has an end of its own,
16 to 63 tokens from its beginning, which the digest decides too.

A prompt that ends with the beginning of the answer to what stands before it is *continued*: the text goes on at the
character where it was cut off, and ends where it would have ended. A chat is continued where it is asked for; a text
completion always, since there it is just a longer prompt.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from backends.simulated.serving.types import Prompt
from backends.simulated.serving.words import Vocabulary, Words, id_bytes

SHORTEST_ANSWER: Final = 16
ANSWER_LENGTHS: Final = 48
_BEGINNING: Final = re.compile(r"~([0-9a-f]{6})\.0")
_CUT_BEGINNING: Final = re.compile(r"~[0-9a-f]{0,6}\.?\Z")


@dataclass(frozen=True, slots=True)
class Continued:
    """An answer from its token `token` on, of which the first `characters` were said already.

    `natural_tokens`: how many tokens are left until it ends by itself, 0 or less where it has ended.
    """

    digest: str
    token: int = 0
    characters: int = 0

    @property
    def natural_tokens(self) -> int:
        """Tokens until its own end."""
        return SHORTEST_ANSWER + int(self.digest, 16) % ANSWER_LENGTHS - self.token

    def piece(self, number: int) -> str:
        """Text of the `number`-th token from here on."""
        text = _piece(self.digest, self.token + number)
        return text if number else text[self.characters :]


def digest_of(ids: Sequence[int]) -> str:
    """Six hexadecimal digits that stand for a prompt."""
    return blake2b(id_bytes(ids), digest_size=3).hexdigest()


def answer_of(prompt: Prompt, vocabulary: Vocabulary) -> Continued:
    """Where the answer to a prompt begins. O(prompt) for each beginning of an answer in it that fits."""
    if prompt.text is None:
        return _continued_ids(prompt.ids, vocabulary)
    text = prompt.text
    for found in reversed(list(_BEGINNING.finditer(text))):
        rest = text[found.start() :]
        position = _position(rest, found[1])
        if position is not None and digest_of(vocabulary.encode(text[: found.start()])) == found[1]:
            return Continued(found[1], *position)
    if cut := _CUT_BEGINNING.search(text):
        digest = digest_of(vocabulary.encode(text[: cut.start()]))
        if _piece(digest, 0).startswith(cut[0]):
            return Continued(digest, 0, len(cut[0]))
    return Continued(digest_of(prompt.ids))


def expected_text(prompt: str, tokens: int, vocabulary: Vocabulary | None = None) -> str:
    """The first so many tokens of the answer to a rendered prompt, for who checks what a client got."""
    words = Words() if vocabulary is None else vocabulary
    answer = answer_of(Prompt(tuple(words.encode(prompt)), prompt), words)
    return "".join(answer.piece(number) for number in range(tokens))


def is_whole(text: str) -> bool:
    """Whether a text is the unbroken beginning of one answer, from its first token on."""
    return not text or (len(text) >= 9 and _position(text, text[1:7]) is not None)


def _piece(digest: str, number: int) -> str:
    return f"~{digest}.{number}"


def _position(text: str, digest: str) -> tuple[int, int] | None:
    """Whole tokens, and characters of the next one, at the end of the beginning of an answer; None: it is none."""
    at, number = 0, 0
    while at < len(text):
        piece = _piece(digest, number)
        if not text.startswith(piece, at):
            left = text[at:]
            return (number, len(left)) if piece.startswith(left) else None
        at += len(piece)
        number += 1
    return number, 0


def _continued_ids(ids: tuple[int, ...], vocabulary: Vocabulary) -> Continued:
    """As for text, but whole tokens only: nothing else can be said in token ids."""
    running = blake2b(digest_size=3)
    for place, one in enumerate(ids):
        digest = running.copy().hexdigest()
        if vocabulary.encode(_piece(digest, 0)) == [one]:
            rest = ids[place:]
            whole = [token for number in range(len(rest)) for token in vocabulary.encode(_piece(digest, number))]
            if list(rest) == whole:
                return Continued(digest, len(rest))
        running.update(id_bytes((one,)))
    return Continued(running.hexdigest())
