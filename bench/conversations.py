"""Conversations of any length, made of the texts in bench/data: as bodies of chat requests, turn by turn.

    system, user, assistant, user, ..., assistant, user      one more pair each turn; a request ends with the user

Excerpts begin anywhere in the text and differ in length, so that hardly any two messages are equal.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
TEXTS = ("latin", "japanese", "code")

_WEIGHTS = {"system": 2.0, "user": 0.5, "assistant": 1.5}
"""How long the messages of a role are, in means."""

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Size:
    """A conversation whose body has about `body_bytes` in the `turns`-th turn."""

    name: str
    body_bytes: int
    turns: int


SIZES = (Size("2 KB", 2_000, 3), Size("33 KB", 33_000, 40), Size("400 KB", 400_000, 150))


def read_text(name: str) -> str:
    """One of `TEXTS`."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def conversation(text: str, size: Size, rng: random.Random) -> list[Message]:
    """All messages of a conversation up to its last turn; without the last two it is the turn before."""
    roles = ["system", *["user", "assistant"] * (size.turns - 1), "user"]
    around = len(chat_body([{"role": role, "content": ""} for role in roles]))
    bytes_per_char = len(json.dumps(text, ensure_ascii=False).encode()) / len(text)
    mean_chars = (size.body_bytes - around) / bytes_per_char / sum(_WEIGHTS[role] for role in roles)
    return [{"role": role, "content": _excerpt(text, mean_chars * _WEIGHTS[role], rng)} for role in roles]


def chat_body(messages: Sequence[Message]) -> bytes:
    """The body of a chat request as OpenAI's client writes it."""
    request = {"messages": messages, "model": "smollm2", "max_tokens": 256, "stream": True}
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


def _excerpt(text: str, mean_chars: float, rng: random.Random) -> str:
    chars = round(mean_chars * rng.uniform(0.5, 1.5))
    start = rng.randrange(len(text) - chars)
    return text[start : start + chars]
