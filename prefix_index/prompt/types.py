"""The nouns of prompts.

JSON body --the edge--> PromptView --template--> Rendered --tokenizer--> TokenIds
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from prefix_index.types import TokenIds

Json = Mapping[str, object]
"""A decoded JSON object, as the client sent it."""


Clock = Callable[[], datetime]
"""An engine's wall clock, for templates that write the date."""


class ContentFormat(StrEnum):
    """What a chat template expects in `message.content`."""

    STRING = "string"
    """Text; the text parts of a message are joined with a newline."""
    PARTS = "parts"
    """A list of parts (`{"type": "text", "text": ...}`) that the template walks itself."""


class Renderer(StrEnum):
    """Whose conventions the messages follow on their way into the template."""

    VLLM = "vllm"
    """vLLM (0.32): tools and tool calls are read into models and written out again, so their keys come in the model's
    order, unknown keys vanish and a missing description reads `null`; `developer` becomes `system` where the template
    does not know it; a system prompt loses its billing line."""
    SGLANG = "sglang"
    """SGLang (0.5): text parts are joined with a space; a last answer is spoken by the user, or continued as it is."""
    LLAMACPP = "llamacpp"
    """llama.cpp: the template is tried out for what it takes; numbers are written as C++ does; a last answer is
    continued; the tokenizer's own first token replaces the template's."""
    TGI = "tgi"
    """TGI (3): parts are joined without anything between; tools are written in its own words, so not known here."""
    TRTLLM = "trtllm"
    """TensorRT-LLM: nearly vLLM; arguments that are no JSON stay text."""
    PLAIN = "plain"
    """The project's reference engine: content is text, everything else is as the client sent it."""
    CUSTOM = "custom"
    """By code of the engine, whatever template there is (gpt-oss' Harmony and the like): chats cannot be rendered."""


class Unsupported(StrEnum):
    """Why the token ids of a prompt cannot be known here: the kinds of `UnsupportedContent`."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    EMBEDS = "embeds"
    OTHER_PART = "other_part"
    PROMPT_BATCH = "prompt_batch"
    """Several prompts in one request: they may belong on several endpoints."""
    PROMPT_FORM = "prompt_form"
    """Neither text nor token ids; the engine will refuse it in its own words."""
    CUSTOM_ENCODER = "custom_encoder"
    """The engine renders this model's chats by code of its own: `Renderer.CUSTOM`."""
    NO_TOKENIZER = "no_tokenizer"
    """The model's tokenizer is of a kind that only its engine can read."""
    TOOLS = "tools"
    """The engine writes tools into the prompt in words of its own."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the engine reads it, in pieces: text to be tokenised, and ids that stand as they are.

    `exact`: whether the tokens of all pieces are the engine's. They are not where media stand (media.py): four pseudo
    ids each, whatever their number is in the engine.
    """

    pieces: tuple[str | TokenIds, ...] = field(repr=False)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class PromptView:
    """What of a request decides its tokens, as decoded JSON; exactly one of `messages` and `prompt` is set.

    `add_special_tokens`: whether the tokenizer adds its own (engines: no for chats, whose template writes them; yes
    for plain prompts). `template_kwargs` are further variables of the template (`chat_template_kwargs` of the request);
    `reasoning_effort` is the request's field of that name. Nothing in here is changed by rendering.
    """

    messages: list[dict[str, object]] | None = field(default=None, repr=False)
    prompt: str | list[object] | None = field(default=None, repr=False)
    tools: list[object] | None = field(default=None, repr=False)
    documents: list[object] | None = field(default=None, repr=False)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    template_kwargs: Json = field(default_factory=dict, repr=False)
    reasoning_effort: str | None = None
