"""The content of a message: from what clients send to what templates take.

    null                      ->  no parts
    "text"                    ->  one part
    [text, image, text]       ->  parts: text as it is, media with their mark (media.py)

    STRING   parts joined to one text; media as marks on lines of their own in front, or in their place
    PARTS    {"type": "text", "text": ...} | {"type": "text", "text": mark}, {"type": "image"} | ...

How texts are joined is the engine's habit: `Joining`. Nothing the client sent is changed. Linear in the content.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefix_index.errors import TemplateFailed
from prefix_index.prompt.media import TEXT_FIELDS, Media, MediaMarks, is_text, media_of
from prefix_index.prompt.types import Json

Part = str | Media | Json
"""Text, media, or a part that is handed to the template as it is (`tool_reference`)."""

_OWN_FIELDS = frozenset(
    {
        *TEXT_FIELDS.values(),
        *("type", "uuid", "name", "data", "file", "closed", "prompt_cache_breakpoint"),
        *(
            "image_url",
            "image_pil",
            "image_embeds",
            "input_audio",
            "audio_url",
            "audio_embeds",
            "video_url",
            "video_embeds",
        ),
    }
)
"""Fields of parts that mean something to vLLM (0.32); it hands all others to templates that walk parts."""


class FieldedText(str):
    """Text that came with further fields (`cache_control`, ...)."""

    fields: Json


@dataclass(frozen=True, slots=True)
class Joining:
    """How parts become one text: `glue` between texts; empty ones are left out unless `keeps_empty`.

    Marks of media lead the text, each on a line of its own (`media_lead`: so vLLM puts placeholders), or stand in
    their place with `media_glue` around.
    """

    glue: str = "\n"
    keeps_empty: bool = False
    media_lead: bool = False
    media_glue: str = "\n"


LINES = Joining(media_lead=True)


def parts_of(content: object) -> list[Part]:
    """The parts of a message's content.

    Raises `TemplateFailed` for what no engine accepts, `UnsupportedContent` for parts that are neither text nor media.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise TemplateFailed("message content must be text or a list of parts")
    return [part for item in content if (part := _part(item)) is not None]


def as_text(parts: Sequence[Part], joining: Joining, marks: MediaMarks) -> str:
    """All parts as one text."""
    texts: list[tuple[str, str]] = []
    lead: list[str] = []
    for part in parts:
        if isinstance(part, Media):
            mark = marks.mark(part)
            if joining.media_lead:
                lead.append(mark)
            else:
                texts.append((joining.media_glue, mark))
        else:
            text = part if isinstance(part, str) else str(part.get("name") or "")
            if text or joining.keeps_empty:
                texts.append((joining.glue, text))
    whole = _joined(texts, joining)
    return "\n".join([*lead, whole] if whole else lead) if lead else whole


def as_parts(parts: Sequence[Part], marks: MediaMarks, *, with_fields: bool = False) -> list[Json]:
    """All parts as objects for templates that walk them; in front of media stands its mark, as text.

    `with_fields`: what a part has besides what engines know stays with it.
    """
    seen: list[Json] = []
    for part in parts:
        if isinstance(part, FieldedText) and with_fields:
            seen.append({"type": "text", "text": part, **part.fields})
        elif isinstance(part, str):
            seen.append({"type": "text", "text": part})
        elif isinstance(part, Media):
            seen.append({"type": "text", "text": marks.mark(part)})
            seen.append({"type": str(part.kind), **(_further(part.part) if with_fields else {})})
        else:
            seen.append(part)
    return seen


def _part(item: object) -> Part | None:
    """One part; `None` for a text part without text."""
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        raise TemplateFailed("each content part must be an object")
    if not is_text(item):
        return media_of(item)
    kind = item["type"]
    if kind == "tool_reference":
        return {"type": kind, "name": item.get("name")}
    text = item.get(TEXT_FIELDS[kind])
    if text is not None and not isinstance(text, str):
        raise TemplateFailed("the text of a content part must be a string")
    return text if len(item) <= 2 or text is None else _fielded(text, _further(item))


def _further(part: Json) -> Json:
    return {key: value for key, value in part.items() if key not in _OWN_FIELDS}


def _fielded(text: str, fields: Json) -> str:
    if not fields:
        return text
    fielded = FieldedText(text)
    fielded.fields = fields
    return fielded


def _joined(texts: list[tuple[str, str]], joining: Joining) -> str:
    """Texts with what belongs between two of them: the weaker glue wins, so that media without glue touch both."""
    if not texts:
        return ""
    whole = [texts[0][1]]
    for (glue_before, _), (glue, text) in pairwise(texts):
        whole.append(min(glue_before, glue, key=len) + text)
    return "".join(whole)
