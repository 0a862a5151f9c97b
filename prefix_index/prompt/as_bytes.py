"""Prompts whose tokens nobody could tell: what the client sent stands for them.

    token ids              -->  themselves
    chats, texts, batches  -->  their JSON, four bytes to a "token"; a picture's digest where it stood

In the order in which templates write: tools first, then messages, each before the next. So two conversations that
begin alike have "tokens" that begin alike, and what one endpoint holds of them is told from that, roughly.
"""

from collections.abc import Mapping

import msgspec

from prefix_index.errors import UnsupportedContent
from prefix_index.prompt.media import is_text, media_of
from prefix_index.prompt.render import plain_prompt
from prefix_index.prompt.types import PromptView, Unsupported
from prefix_index.types import TOKEN_BYTES, TokenIds


def bytes_as_tokens(view: PromptView) -> TokenIds:
    """The canonical serialisation of a prompt, padded to whole "tokens" of four bytes. O(its length).

    Raises `UnsupportedContent` for parts that are neither text nor media, and for what is nested too deeply.
    """
    messages = None if view.messages is None else [_with_digests(message) for message in view.messages]
    try:
        data = msgspec.json.encode((view.tools, view.documents, messages, view.prompt))
    except RecursionError:
        raise UnsupportedContent(Unsupported.PROMPT_FORM) from None
    return TokenIds(data + b" " * (-len(data) % TOKEN_BYTES))


def given_ids(view: PromptView) -> TokenIds | None:
    """The prompt itself, where the client sent token ids. O(ids)."""
    if view.messages is not None or not isinstance(view.prompt, list):
        return None
    try:
        found = plain_prompt(view)
    except UnsupportedContent:
        return None
    return found if isinstance(found, bytes) else None


def _with_digests(message: Mapping[str, object]) -> Mapping[str, object]:
    """A message whose pictures and files are digests of themselves, which weigh no more than a line of text."""
    content = message.get("content")
    if not isinstance(content, list) or all(not isinstance(part, dict) or is_text(part) for part in content):
        return message
    shown = [media_of(part).digest.hex() if isinstance(part, dict) and not is_text(part) else part for part in content]
    return {**message, "content": shown}
