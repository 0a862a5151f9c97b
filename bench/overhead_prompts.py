"""What is asked in `make bench-overhead`: one long system prompt, and a question that is another one each time.

    {"model", "messages": [ system: shared by all | user: "Question " 123456789012 ". ..." ], "max_tokens"}
                                            blocks  ...|-- one block has all digits --|...

The number has twelve digits, a token each, and all of them stand in one block of the engine. So every prompt of a size
has the same number of tokens, and two prompts share exactly the blocks before that one: what an engine that has
answered once reports as cached, always. A backend that can neither count nor remember tells the truth by a constant.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

import tokenizers

from bench.conversations import read_text
from gateway.edge.reading import Arrival, read_request
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId
from prefix_index.prompt import ModelText, load_model_text

MODEL: Final = "smollm2"
BLOCK_SIZE: Final = 16
DIGITS: Final = 12
SIZES: Final = {"2.3 KB": 2_300, "33 KB": 33_000, "400 KB": 400_000}
"""Bytes of a body."""
ANSWER: Final = "The text says that a small team can do this in an afternoon, if somebody reads the instructions first."
_QUESTION: Final = ("Question ", ". What does the text say about it? Answer in one sentence.")
_FILLER: Final = (" Be", " brief", " and", " name", " your", " source", " when", " there", " is", " one", " here")
_UNUSUAL: Final = (0, 123_456_789_012, 10**DIGITS - 1)


class PromptsDiffer(Exception):
    """The prompts of a size do not have what a constant answer needs; the text says which size, and what was found."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The prompts of one size: bodies are `head`, a number of `DIGITS` digits, `tail`. `cached_tokens` of each are
    computed once, for the first prompt that an engine answers."""

    size: str
    head: str
    tail: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    def body(self, number: int) -> bytes:
        """One request."""
        return f"{self.head}{number:0{DIGITS}d}{self.tail}".encode()

    def answer(self) -> dict[str, object]:
        """What the engine says to each of them."""
        message = {"role": "assistant", "content": ANSWER}
        return {
            "id": "chatcmpl-0f8f5a7c2d6e4b1f",
            "object": "chat.completion",
            "created": 1795961218,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.output_tokens,
                "total_tokens": self.prompt_tokens + self.output_tokens,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            },
        }


def asks(sizes: dict[str, int], model: Path) -> list[Ask]:
    """Prompts of these sizes for the model in a directory. Raises `PromptsDiffer`; about a second for 400 KB."""
    counting = _Counting(load_model_text(model), tokenizers.Tokenizer.from_file(str(model / "tokenizer.json")))
    return [_ask(size, body_bytes, counting) for size, body_bytes in sizes.items()]


class _Counting:
    """The engine's way from a body to token ids: the model's own template, and its tokenizer over the whole text."""

    def __init__(self, text: ModelText, tokenizer: tokenizers.Tokenizer) -> None:
        self._text, self.tokenizer = text, tokenizer

    def ids(self, body: bytes) -> list[int]:
        """Of the prompt that a body asks with."""
        rendered = self._text.prompt_of(read_request(_ARRIVAL, body).prompt)
        whole = "".join(piece for piece in rendered.pieces if isinstance(piece, str))
        return list(self.tokenizer.encode(whole, add_special_tokens=False).ids)


def _ask(size: str, body_bytes: int, counting: _Counting) -> Ask:
    """Measured without a filler, then with as many words, a token each, as bring all digits into one block."""
    output_tokens = len(counting.tokenizer.encode(ANSWER, add_special_tokens=False).ids) + 1
    system = _system(body_bytes)
    bare = Ask(size, *_halves(system), 0, 0, output_tokens)
    before = _common(counting.ids(bare.body(_UNUSUAL[0])), counting.ids(bare.body(_UNUSUAL[-1])))
    words = -before % BLOCK_SIZE if before % BLOCK_SIZE > BLOCK_SIZE - DIGITS else 0
    filled = Ask(size, *_halves(system + "".join(_FILLER[:words])), 0, 0, output_tokens)
    prompts = [counting.ids(filled.body(number)) for number in _UNUSUAL]
    before = min(_common(prompts[0], other) for other in prompts[1:])
    behind = min(_common(prompts[0][::-1], other[::-1]) for other in prompts[1:])
    lengths = {len(prompt) for prompt in prompts}
    if lengths != {before + DIGITS + behind} or before % BLOCK_SIZE > BLOCK_SIZE - DIGITS:
        raise PromptsDiffer(f"{size}: {lengths} tokens, {before} of them before the number, {behind} behind it")
    return Ask(size, filled.head, filled.tail, lengths.pop(), before // BLOCK_SIZE * BLOCK_SIZE, output_tokens)


def _system(body_bytes: int) -> str:
    """A system prompt that fills a body of so many bytes, but for the filler."""
    room = body_bytes - len(_body("", "0" * DIGITS)) - len("".join(_FILLER))
    parts: list[str] = []
    for paragraph in _paragraphs():
        part = paragraph[: max(0, room)]
        room -= len(json.dumps(f"{part}\n\n")) - 2  # as JSON spells it
        if room <= 0:
            break
        parts.append(part)
    return "\n\n".join([*parts, part.rpartition(" ")[0]]).strip()


def _halves(system: str) -> tuple[str, str]:
    """The body before the number and behind it."""
    mark = "0" * DIGITS
    head, _, tail = _body(system, mark).rpartition(mark)
    return head, tail


def _body(system: str, number: str) -> str:
    question = f"{_QUESTION[0]}{number}{_QUESTION[1]}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    request = {"model": MODEL, "messages": messages, "max_tokens": 64, "temperature": 0.2}
    return json.dumps(request, separators=(",", ":"))


def _paragraphs() -> Iterator[str]:
    """English without end: the paragraphs of the corpus, each round numbered, so that no two are the same text."""
    paragraphs = [one.strip() for one in read_text("latin").split("\n\n") if one.strip()]
    for turn in count(1):
        for at, paragraph in enumerate(paragraphs, 1):
            yield f"{turn}.{at} {paragraph}"


def _common(one: list[int], other: list[int]) -> int:
    """How many leading tokens are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


_ARRIVAL: Final = Arrival(
    id=RequestId("bench"),
    tenant=Tenant(TenantId("bench"), KeyId("bench"), "bench", ""),
    route=Route.CHAT,
    path=Route.CHAT.value,
    headers=(),
    started_s=0.0,
    opened_at=datetime(2026, 1, 1, tzinfo=UTC),
)
