"""Whether two images may be one picture: what addresses and the first bytes of files tell, which is not much."""

import base64
import binascii
import struct
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_HEAD_CHARS: Final = 64
_LENGTHS: Final = 2
"""One picture encoded twice is seldom twice as long."""


def same_picture(first: str, later: str, *, is_same_conversation: bool) -> str | None:
    """Why two different images may be the same picture; None where nothing says so.

    An address that differs in its query alone is sure. Of bytes it can only be said that they stand in the same
    conversation, in one format, about as long, and (of PNG) that the pictures have the same size.
    """
    if first.startswith(("http://", "https://")) and later.startswith(("http://", "https://")):
        same = first.partition("?")[0] == later.partition("?")[0]
        return "the address differs in its query alone" if same else None
    is_alike = _format(first) == _format(later) and max(len(first), len(later)) < _LENGTHS * min(len(first), len(later))
    if not is_same_conversation or not is_alike:
        return None
    size, other = png_size(first), png_size(later)
    if size is not None and other is not None:
        return f"the same conversation and size, {size[0]} x {size[1]} pixels" if size == other else None
    return "the same conversation and format, and about as long; the picture cannot be compared"


def png_size(url: str) -> tuple[int, int] | None:
    """Width and height of a PNG in a data URL; None where it is none."""
    head = url.partition(",")[2][:_HEAD_CHARS]
    try:
        data = base64.b64decode(head[: len(head) // 4 * 4], validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(data) < 24 or not data.startswith(_PNG):
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _format(url: str) -> str:
    return url[:40].partition(",")[0].partition(";")[0]
