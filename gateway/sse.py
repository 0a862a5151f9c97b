"""Server-sent events as bytes: where one event ends, and what it says.

    data: {"a": 1}\\n      one event: its lines up to and with a blank line; a line ends with \\n, \\r\\n or \\r
    : still here\\n        a comment: no part of the data
    \\n

For whole events only; a stream that comes in chunks is cut into whole events before (`gateway.relay`). Both functions
are linear in their bytes.
"""

import re
from collections.abc import Iterator
from typing import Final

BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
"""The end of one event: two line ends in a row, of any kind each. `\\r\\n` is one, hence the atomic groups."""

_LINE = re.compile(rb"\r\n|\n|\r")


def split_events(events: bytes) -> Iterator[bytes]:
    """The events, each with its blank line; a last one that has none comes as it is. Joined they are `events`."""
    start = 0
    for found in BLANK_LINE.finditer(events):
        yield events[start : found.end()]
        start = found.end()
    if start < len(events):
        yield events[start:]


def event_data(event: bytes) -> bytes:
    """The data of one event: its `data:` lines without the field name and one leading space, joined by newlines.

    Empty where there is none: a comment, an event of another field only.
    """
    lines = (line for line in _LINE.split(event) if line.startswith(b"data:"))
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines).strip()


def named_event(name: str, data: bytes) -> bytes:
    """An event with a name, as the Messages and Responses dialects send all of theirs; `data` holds no line end."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
