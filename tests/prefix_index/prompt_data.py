"""Prompts recorded and collected (tests/data/prompts), and the tokenizer they are tried with."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from backends.reference.model_files import ensure_model
from prefix_index.prompt import ContentFormat, ModelText, PromptView, Renderer, load_model_text
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.plain_chat import plain_messages
from prefix_index.prompt.sglang_chat import sglang_messages
from prefix_index.prompt.types import Json
from prefix_index.prompt.vllm_chat import vllm_messages
from prefix_index.token_bytes import unpack

DATA = Path(__file__).parents[1] / "data" / "prompts"


@dataclass(frozen=True, slots=True)
class Chat:
    """One request of the corpus."""

    name: str
    request: dict[str, object]

    @property
    def view(self) -> PromptView:
        messages, tools = self.request["messages"], self.request.get("tools")
        assert isinstance(messages, list)
        assert tools is None or isinstance(tools, list)
        return PromptView(messages=messages, tools=tools)


@functools.cache
def chats() -> tuple[Chat, ...]:
    lines = (DATA / "chats.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Chat(row["id"], row["request"]) for row in map(json.loads, lines))


@functools.cache
def model_directory() -> Path:
    """SmolLM2's tokenizer, with a template that renders tools."""
    return ensure_model("tiny")


@functools.cache
def oracle() -> tokenizers.Tokenizer:
    """The same tokenizer, used whole."""
    return tokenizers.Tokenizer.from_file(str(model_directory() / "tokenizer.json"))


def smollm2() -> ModelText:
    """The tokenizer with SmolLM2's own template, and a cache of its own."""
    return load_model_text(model_directory(), DATA / "smollm2.jinja")


def ids(text: ModelText, view: PromptView) -> list[int]:
    encoding = text.begin(view)
    encoding.compute()
    return list(unpack(encoding.finish()))


def text_of(model: ModelText, view: PromptView) -> str:
    """The text of a chat without media."""
    (piece,) = model.prompt_of(view).pieces
    assert isinstance(piece, str)
    return piece


def template_messages(messages: list[object], wanted: ContentFormat, renderer: Renderer) -> list[Json]:
    """Messages as the template sees them."""
    if renderer is Renderer.PLAIN:
        return plain_messages(messages, MediaMarks())
    if renderer is Renderer.SGLANG:
        return sglang_messages(messages, wanted, MediaMarks())
    return vllm_messages(messages, wanted, MediaMarks())
