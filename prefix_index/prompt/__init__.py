"""Prompts: from the messages of a request to the text and the token ids that its engine will compute.

load_model_text        a model's files -> ModelText             (model_text)
ModelText.for_engine   its variant for one kind of engine
ModelText.prompt_of    PromptView -> Rendered
ModelText.begin_prompt Rendered -> Encoding -> TokenIds
ChatTemplate           one compiled template                    (chat_template)
media_digest           what a chat shows besides text           (media)
"""

from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.media import media_digest
from prefix_index.prompt.model_text import ModelText, load_model_text
from prefix_index.prompt.render import template_messages
from prefix_index.prompt.types import ContentFormat, PromptView, Rendered, Renderer, Unsupported

__all__ = [
    "ChatTemplate",
    "ContentFormat",
    "ModelText",
    "PromptView",
    "Rendered",
    "Renderer",
    "Unsupported",
    "load_model_text",
    "media_digest",
    "template_messages",
]
