"""`continue_final_message`: the rendered text must end inside the last message.

A template closes every message. So a mark is put behind the last message's text, the template is run, and everything
from the mark on is cut away; where the template trimmed the text, the mark's own trailing space is gone and the spaces
before it go too. This is how transformers does it, mark included, so that even a template that measures or changes the
text gives the same result.
"""

from collections.abc import Sequence

from prefix_index.errors import TemplateFailed
from prefix_index.prompt.types import Json

MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def with_mark(messages: Sequence[Json]) -> list[Json]:
    """A copy of `messages` with the mark behind the last message's last text."""
    content = messages[-1].get("content") if messages else None
    if isinstance(content, list):
        marked: object = _parts_with_mark(content)
    elif isinstance(content, str):
        marked = content + MARK
    else:
        raise TemplateFailed("there is no final message to continue")
    return [*messages[:-1], {**messages[-1], "content": marked}]


def cut_after_mark(text: str, messages: Sequence[Json]) -> str:
    """`text` up to the mark. Raises `TemplateFailed` when the template dropped the final message."""
    place = text.rfind(MARK.strip())
    if place < 0 or _final_text(messages).strip() not in text:
        raise TemplateFailed("the template leaves out the final message that should be continued")
    before = text[:place]
    return before if text.startswith(MARK, place) else before.rstrip()


def _parts_with_mark(parts: list[object]) -> list[object]:
    for index in reversed(range(len(parts))):
        part = parts[index]
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            return [*parts[:index], {**part, "text": text + MARK}, *parts[index + 1 :]]
    raise TemplateFailed("there is no text in the final message to continue")


def _final_text(messages: Sequence[Json]) -> str:
    content = messages[-1].get("content")
    if isinstance(content, list):
        texts: list[str] = [
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        return texts[-1]
    assert isinstance(content, str)
    return content
