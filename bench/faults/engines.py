"""The engines of a run: which, how each is started, what is asked of it, and what it must answer."""

import json
import sys
from dataclasses import dataclass
from typing import Final

import httpx

from backends.simulated.serving.text import answer_of
from backends.simulated.serving.types import Prompt as Rendered
from backends.simulated.serving.words import Words
from bench.faults.parts import Ready
from bench.faults.types import Record

HOST: Final = "127.0.0.1"
SPEED: Final = 1.0
"""Seconds of an engine in one of ours."""
BLOCKS: Final = 4000
"""Of its KV cache: conversations push each other out before a run ends."""


@dataclass(frozen=True, slots=True)
class NamedEngine:
    """One engine of the fleet; `version` of its dialect, None: the newest that is simulated."""

    name: str
    dialect: str
    model: str
    version: str | None = None


FLEET: Final = (
    NamedEngine("engine-0", "vllm", "large"),
    NamedEngine("engine-1", "vllm", "large", "0.23.0"),
    NamedEngine("engine-2", "sglang", "large"),
    NamedEngine("engine-3", "trtllm", "large"),
    NamedEngine("engine-4", "llamacpp", "small"),
    NamedEngine("engine-5", "vllm", "small"),
)
"""Four of one model and two of another, in four dialects."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a client asks: a system prompt, then user and assistant in turn."""

    model: str
    said: tuple[str, ...]
    max_tokens: int
    is_stream: bool

    @property
    def messages(self) -> list[dict[str, str]]:
        """As the API has them."""
        roles = ("system", *("user" if at % 2 == 0 else "assistant" for at in range(len(self.said) - 1)))
        return [{"role": role, "content": text} for role, text in zip(roles, self.said, strict=True)]


def body_of(prompt: Prompt) -> bytes:
    """The request, asking for usage at the end of a stream."""
    asked: dict[str, object] = {"model": prompt.model, "messages": prompt.messages, "max_tokens": prompt.max_tokens}
    if prompt.is_stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(asked).encode()


def command_of(spec: NamedEngine, port: int, control: int) -> list[str]:
    """How it is started; it speaks at `port`, and listens to what is to go wrong at `control`."""
    flags = {
        "--dialect": spec.dialect,
        "--model": spec.model,
        "--speed": str(SPEED),
        "--blocks": str(BLOCKS),
        "--port": str(port),
        "--control-port": str(control),
    }
    if spec.version is not None:
        flags["--version"] = spec.version
    return [sys.executable, "-m", "backends.simulated.serving", *(part for flag in flags.items() for part in flag)]


def answers_at(port: int) -> Ready:
    """Whether it answers."""

    def ask() -> bool:
        try:
            return httpx.get(f"http://{HOST}:{port}/v1/models", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    return ask


def due_text(prompt: Prompt) -> str:
    """What every engine must answer, to the last character. O(prompt)."""
    words = Words()
    text = words.render(prompt.messages, {}, is_open=False)
    answer = answer_of(Rendered(tuple(words.encode(text)), text), words)
    return "".join(answer.piece(number) for number in range(min(prompt.max_tokens, answer.natural_tokens)))


async def slowed(control: int, factor: float) -> None:
    """Let an engine take so many times as long."""
    async with httpx.AsyncClient(timeout=5.0) as http:
        (await http.post(f"http://{HOST}:{control}/faults", json={"slow": factor})).raise_for_status()


async def records_of(name: str, control: int) -> list[Record]:
    """What an engine remembers of the requests that it has ended since it was started; nothing where it is away."""
    try:
        async with httpx.AsyncClient(timeout=2.0) as http:
            said = (await http.get(f"http://{HOST}:{control}/requests")).json()
    except (httpx.HTTPError, ValueError):
        return []
    return [
        Record(
            endpoint=name,
            answer_id=str(one["request_id"]),
            prompt_tokens=int(one["prompt_tokens"]),
            cached_tokens=int(one["cached_tokens"]),
            output_tokens=int(one["output_tokens"]),
            outcome=str(one["outcome"]),
        )
        for one in said
    ]
