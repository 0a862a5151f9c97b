"""Prompts: from the messages of a request to the text and the token ids that its engine will compute.

load_model_text        a model's files -> ModelText             (model_text)
ModelText.for_engine   its variant for one kind of engine
ModelText.prompt_of    PromptView -> Rendered
ModelText.begin_prompt Rendered -> Encoding -> TokenIds
ChatTemplate           one compiled template                    (chat_template)
renders_long           is `prompt_of` work for a thread?        (weight)
has_media, media_chars what a chat shows besides text           (media)
turn_texts, held_tokens what is held for the next turn, after the answer (next_turn)
given_ids              token ids that the client sent           (as_bytes)
bytes_as_tokens        what stands for tokens nobody could tell (as_bytes)
"""

from prefix_index.prompt.as_bytes import bytes_as_tokens, given_ids
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.media import has_media, media_chars
from prefix_index.prompt.model_text import ModelText, load_model_text
from prefix_index.prompt.next_turn import AnswerSaid, TurnTexts, Unheld, held_tokens, turn_texts
from prefix_index.prompt.types import ContentFormat, PromptView, Rendered, Renderer, Unsupported
from prefix_index.prompt.weight import renders_long

__all__ = [
    "AnswerSaid",
    "ChatTemplate",
    "ContentFormat",
    "ModelText",
    "PromptView",
    "Rendered",
    "Renderer",
    "TurnTexts",
    "Unheld",
    "Unsupported",
    "bytes_as_tokens",
    "given_ids",
    "has_media",
    "held_tokens",
    "load_model_text",
    "media_chars",
    "renders_long",
    "turn_texts",
]
