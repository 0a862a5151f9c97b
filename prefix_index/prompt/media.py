"""What stands for pictures, sound and files in a prompt's token ids: a digest of what they hold.

    text, image, text   --template-->   "...<mark 0>...<image>..."   --cut-->   "...", 4 ids, "...<image>..."

An engine puts a number of tokens in the place of a picture that depends on model and picture. They are not known here,
but whether two prompts show the same picture is: so its digest stands there as four pseudo token ids, and equal text
with different pictures parts at the picture. Such a prompt is not *exact*: its length is not the engine's.

The place is found with a mark: text that goes through the template like any other and is cut out of what comes back.
It is enclosed in a noncharacter. Where that comes out of the template more often than there are marks, or a mark does
not come out exactly once, nothing is guessed: `UnsupportedContent`. (A client could write such a mark out by its
digest; it would only misplace its own prompt.) A template that writes placeholders before all text has its marks at
the place the part has among the texts, never outside its message.
"""

import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from prefix_index.errors import UnsupportedContent
from prefix_index.prompt.types import Json, PromptView, Rendered, Unsupported
from prefix_index.types import TokenIds

DIGEST_BYTES = 16

KINDS = {
    "image": Unsupported.IMAGE,
    "image_url": Unsupported.IMAGE,
    "input_image": Unsupported.IMAGE,
    "audio": Unsupported.AUDIO,
    "audio_url": Unsupported.AUDIO,
    "input_audio": Unsupported.AUDIO,
    "video": Unsupported.VIDEO,
    "video_url": Unsupported.VIDEO,
    "file": Unsupported.FILE,
    "input_file": Unsupported.FILE,
    "document": Unsupported.FILE,
}
"""Part types whose content is in the request, or is named in it."""

_UNKNOWN = {
    "image_pil": Unsupported.IMAGE,
    "image_embeds": Unsupported.EMBEDS,
    "audio_embeds": Unsupported.EMBEDS,
    "video_embeds": Unsupported.EMBEDS,
    "prompt_embeds": Unsupported.EMBEDS,
}
_BASE64_FIELDS = frozenset({"data", "file_data"})
_NO_CONTENT = frozenset({"type", "cache_control"})
"""Fields of a part that change no token."""

_EDGE = "\ufdd0"
_MARK = re.compile(f"{_EDGE}([0-9]+):([0-9a-f]{{{2 * DIGEST_BYTES}}}){_EDGE}")


@dataclass(frozen=True, slots=True)
class Media:
    """One part that is not text. `digest`: 16 bytes over its kind and content."""

    kind: Unsupported
    digest: bytes
    part: Json = field(repr=False)


class MediaMarks:
    """The marks of one prompt, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._media: list[Media] = []

    def mark(self, media: Media) -> str:
        """Text to stand where `media` does."""
        number = len(self._media)
        self._media.append(media)
        return f"{_EDGE}{number}:{media.digest.hex()}{_EDGE}"

    def cut(self, text: str) -> Rendered:
        """`text` with each mark replaced by the pseudo token ids of its digest. O(length) where there are marks.

        Raises `UnsupportedContent` unless each mark stands in `text` exactly once.
        """
        if not self._media:
            return Rendered((text,))
        parts = _MARK.split(text)
        found = sorted((int(number), digest) for number, digest in zip(parts[1::3], parts[2::3], strict=True))
        wanted = [(number, media.digest.hex()) for number, media in enumerate(self._media)]
        if found != wanted or text.count(_EDGE) != 2 * len(wanted):
            raise UnsupportedContent(self._media[0].kind)
        pieces: list[str | TokenIds] = []
        for place in range(0, len(parts), 3):
            if place:
                pieces.append(TokenIds(bytes.fromhex(parts[place - 1])))
            if parts[place]:
                pieces.append(parts[place])
        return Rendered(tuple(pieces), exact=False)


def media_of(part: Json) -> Media:
    """What a part that is not text shows. O(its content).

    The digest is BLAKE2b-128 over the kind and every field of the part that may change tokens: `detail` unless it is
    "auto" (resolution), `uuid` (an engine's cache key), names of files and what an engine adds. Content counts as the
    bytes it stands for: base64 in a `data:` URL, in `data` and in `file_data` is decoded (what is no base64 counts as
    its text without spaces), media types of `data:` URLs do not count. Other `data:` URLs count as the text they hold:
    engines read base64 only. An http URL or a file id counts as its text:
    nothing is fetched, so two URLs of one picture differ, and one URL whose picture changed does not.
    Raises `UnsupportedContent` for parts of other types, and for those that show nothing.
    """
    kind = _kind_of(part)
    content = _canonical(part)
    if not _string_chars(content):
        raise UnsupportedContent(kind)
    digest = blake2b(kind.encode(), digest_size=DIGEST_BYTES, person=b"prefixgate-media")
    try:
        _absorb(digest, content, "")
    except RecursionError:
        raise UnsupportedContent(kind) from None
    return Media(kind, digest.digest(), part)


def media_chars(view: PromptView) -> int:
    """Length of the strings in parts that are not text: what `media_of` will have to read. O(parts)."""
    return sum(_string_chars(part) for part in _parts_but_text(view))


def has_media(view: PromptView) -> bool:
    """Whether a chat has a part that is not text, however much or little is in it. O(parts)."""
    return any(True for _ in _parts_but_text(view))


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def _parts_but_text(view: PromptView) -> Iterator[Json]:
    messages: Sequence[object] = view.messages or ()
    return (
        part
        for message in messages
        if isinstance(message, dict) and isinstance(content := message.get("content"), list)
        for part in content
        if isinstance(part, dict) and not is_text(part)
    )


TEXT_FIELDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Part types that are text, and where they keep it."""


def is_text(part: Json) -> bool:
    """Whether a part is text. One with a `uuid` is media from an engine's own store, whatever its type says."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind in TEXT_FIELDS or kind == "tool_reference") and part.get("uuid") is None


def _kind_of(part: Json) -> Unsupported:
    """The kind of media a part is; the fields tell where the type does not."""
    named = part.get("type")
    names = (named,) if isinstance(named, str) and part.get("uuid") is None else (named, *part)
    known = [name for name in names if isinstance(name, str) and name in KINDS]
    if known:
        return KINDS[known[0]]
    unknown = [_UNKNOWN[name] for name in (named, *part) if isinstance(name, str) and name in _UNKNOWN]
    raise UnsupportedContent(unknown[0] if unknown else Unsupported.OTHER_PART)


def _canonical(part: Json) -> Json:
    """A part without what changes no token, and with one spelling for the URL of its content."""
    spelled: dict[str, object] = {}
    for name, value in part.items():
        if name in KINDS and "content" not in spelled:
            spelled["content"] = {"url": value} if isinstance(value, str) else value
        elif name not in _NO_CONTENT:
            spelled[name] = value
    return spelled


def _absorb(digest: _Digest, value: object, name: str) -> None:
    """Feed a value to the digest so that different values are different bytes. Nothing and defaults are left out."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            if not _is_default(key, value[key]):
                _absorb_bytes(digest, b"k", key.encode("utf-8", "surrogatepass"))
                _absorb(digest, value[key], key)
        digest.update(b"}")
    elif isinstance(value, str):
        _absorb_bytes(digest, *_content(value, is_base64=name in _BASE64_FIELDS))
    elif isinstance(value, Sequence):
        for item in value:
            _absorb(digest, item, "")
        digest.update(b"]")
    else:
        _absorb_bytes(digest, b"j", json.dumps(value).encode())


def _is_default(key: str, value: object) -> bool:
    return value is None or (key == "detail" and value == "auto")


def _absorb_bytes(digest: _Digest, tag: bytes, data: bytes) -> None:
    digest.update(tag + len(data).to_bytes(8, "little"))
    digest.update(data)


def _content(text: str, *, is_base64: bool) -> tuple[bytes, bytes]:
    """What a string stands for: bytes, or itself."""
    payload = text
    if text.startswith("data:"):
        head, comma, payload = text.partition(",")
        if comma and not head.endswith(";base64"):
            return b"t", payload.encode("utf-8", "surrogatepass")
        is_base64 = True
    if is_base64:
        try:
            return b"b", binascii.a2b_base64(payload, strict_mode=True)
        except ValueError:
            # Engines differ in what they forgive: line breaks are all that is forgiven here.
            payload = "".join(payload.split())
        try:
            return b"b", binascii.a2b_base64(payload, strict_mode=True)
        except ValueError:
            pass
    return b"t", payload.encode("utf-8", "surrogatepass")


def _string_chars(value: object, depth: int = 3) -> int:
    """Length of the strings in a part; content is not nested deeper than that."""
    if isinstance(value, str):
        return len(value)
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return sum(_string_chars(item, depth - 1) for item in items) if depth else 0
