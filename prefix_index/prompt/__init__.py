"""Prompts: from the messages of a request to the text and the token ids that its engine will compute.

load_model_text     a model's directory -> ModelText       (model_text)
ModelText.begin     PromptView -> Encoding -> TokenIds     (model_text)
ChatTemplate        one compiled template                  (chat_template)
"""

from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.messages import template_messages
from prefix_index.prompt.model_text import ModelText, load_model_text
from prefix_index.prompt.types import ContentFormat, PromptView, Renderer, Unsupported

__all__ = [
    "ChatTemplate",
    "ContentFormat",
    "ModelText",
    "PromptView",
    "Renderer",
    "Unsupported",
    "load_model_text",
    "template_messages",
]
