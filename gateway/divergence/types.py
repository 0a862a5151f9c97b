"""The nouns of divergence: where two prompts part, in what, and what that costs.

earlier   system | tools | message 1 | message 2
now       system'| tools | message 1 | message 2 | message 3
          ^ token 12, in `system`            Parting: a change, a segment, tokens lost behind it
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from gateway.divergence.fingerprints import Fingerprint
from gateway.divergence.sketches import Sketch
from prefix_index.layout import Cause


class Change(StrEnum):
    """In what two prompts part."""

    SYSTEM = "system"
    """The system prompt says something else."""
    TOOL_ORDER = "tool_order"
    """The same tools, in another order."""
    TOOL_SCHEMA = "tool_schema"
    """The same tools in the same order, described in other words."""
    TOOL_SET = "tool_set"
    """Other tools."""
    PROMPT = "prompt"
    """The text of a plain prompt."""
    MESSAGE = "message"
    """A message, and nothing behind it is as before: mostly what the request is about."""
    HISTORY = "history"
    """A message in the midst of a conversation, which goes on as before."""
    WINDOW = "window"
    """The front of a conversation was dropped, and the rest is as before."""
    TEMPLATE = "template"
    """Nothing that the client sent: the chat template writes something of its own, such as the date."""
    OPTIONS = "options"
    """Documents, or variables of the chat template."""
    TOKENIZER = "tokenizer"
    """Nothing that was sent: its tokens come from elsewhere than those of the earlier prompt."""
    SALT = "salt"
    """The same prompt under another salt: a share group, or an adapter."""
    MODEL = "model"
    """The same conversation under another model's name."""
    GROWN = "grown"
    """Nothing: one goes on where the other ended."""


class Earlier(NamedTuple):
    """An earlier prompt: the hashes of its blocks, the size of those, its root, whether its tokens are but bytes; the
    holder that computed it, when, by the monotonic clock; and its parts."""

    hashes: bytes
    block_size: int
    root: bytes
    in_bytes: bool
    holder: str
    at_s: float
    parts: Fingerprint


class Compared(NamedTuple):
    """Two prompts, part by part. `place` counts the messages behind the system prompt from 0, None in what is before;
    `equal_chars` are characters of parts behind the one that changed that are as they were."""

    change: Change
    place: int | None = None
    equal_chars: int = 0
    tools_behind: bool = False
    """Whether the tools come behind the change, and are, or could be, as they were."""


class Detail(NamedTuple):
    """A changed part looked at closely: what was found in it, and what is to be remembered of it.

    `offset` is the first character of the piece that is new, `equal_chars` what is equal behind it, both of the part;
    `likened` is what it was compared with.
    """

    sketch: Sketch
    offset: int | None = None
    equal_chars: int = 0
    cause: Cause | None = None
    likened: Sketch | None = None


class Parting(msgspec.Struct, frozen=True):
    """Where a prompt parts from the closest earlier one of its key and model.

    `token` is the first of the first block that differs, `lost_tokens` what stands behind it as before, and so would
    have been cached if the change came last. `cause` is what was found, or mostly is, at this place.
    """

    token: int
    segment: str
    change: Change
    lost_tokens: int
    detail: Detail | None = None
    cause: Cause | None = None

    @property
    def text(self) -> str:
        """What the ledger keeps: the segment, and in what way it changed."""
        return segment_text(self.change, self.segment, self.cause)


class ProfileName(NamedTuple):
    """Whose requests are counted together: equal prompts come from equal calls."""

    tenant: str
    model: str
    route: str
    toolset: int


class Looked(msgspec.Struct, frozen=True):
    """A prompt held against the earlier ones. `parting` is None where it continues one, or is the first."""

    name: ProfileName
    parts: Fingerprint
    earlier: Earlier | None = None
    shared_blocks: int = 0
    parting: Parting | None = None


MOST_SEGMENT_CHARS: Final = 32
"""What the column holds."""
_OF_TOOLS: Final = {Change.TOOL_ORDER: "order", Change.TOOL_SCHEMA: "schema", Change.TOOL_SET: "set"}
_OF_HISTORY: Final = {Change.WINDOW: "cut", Change.HISTORY: "rewritten"}


def segment_text(change: Change, segment: str, cause: Cause | None) -> str:
    """`system time`, `tools order`, `message 1 user`, `history cut`: at most `MOST_SEGMENT_CHARS`."""
    if change in _OF_TOOLS:
        return f"tools {_OF_TOOLS[change]}"
    if change in _OF_HISTORY:
        return f"history {_OF_HISTORY[change]}"
    is_named = cause is not None and cause is not Cause.UNKNOWN
    return (f"{segment} {cause}" if is_named else segment)[:MOST_SEGMENT_CHARS]


def read_segment(text: str) -> tuple[Change, str, Cause | None]:
    """A change, segment and cause out of a row; what nobody knows is a change of the system prompt's kind."""
    first, _, rest = text.partition(" ")
    for changes in (_OF_TOOLS, _OF_HISTORY):
        for change, word in changes.items():
            if rest == word and first in ("tools", "history"):
                return change, first, None
    last = text.rpartition(" ")[2]
    cause = Cause(last) if last in _CAUSES and last != text else None
    segment = text if cause is None else text[: -len(last) - 1]
    if first == "message":
        return Change.MESSAGE, segment, cause
    return (Change(first) if first in _CHANGES else Change.SYSTEM), segment, cause


_CAUSES: Final = frozenset(cause.value for cause in Cause)
_CHANGES: Final = frozenset(change.value for change in Change)


@dataclass(frozen=True, slots=True)
class Sign:
    """What the traffic of one profile shows of one place. Times are seconds since 1970.

    `lost_tokens` in all of `requests` that parted there, of `of` that were seen since the first; `tokens` and `offsets`
    from the least to the most seen; `causes` by how many of those looked at closely.
    """

    name: ProfileName
    change: Change
    segment: str
    requests: int
    of: int
    lost_tokens: int
    tokens: tuple[int, int]
    offsets: tuple[int, int] | None
    causes: dict[Cause, int]
    first_s: float
    last_s: float
    variants: int
