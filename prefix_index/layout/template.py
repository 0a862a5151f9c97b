"""A prompt's template as segments: what stands in it, how often each part changes, and who says so.

    "You help {{ user }}.\\n\\n{% if vip %}...{% endif %}"

     FIXED      SLOT      FIXED   CONTROL
    |You help ||{{ user }}||.\\n\\n||{% if vip %}...{% endif %}|

The sources of the segments, joined, are the source of their message: nothing is left out, and nothing is rewritten.
A control structure is one segment, as volatile as the most volatile thing in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prefix_index.layout.types import Cause, Volatility


class Syntax(StrEnum):
    """How a template names its slots."""

    JINJA = "jinja"
    """`{{ name }}`, `{% if ... %}`"""
    FORMAT = "format"
    """`{name}`, as in Python's `str.format` and f-strings; `{{` is a brace."""
    LITERAL = "literal"
    """None: text as it was sent. Literals that change from call to call stand for slots."""


class SegmentKind(StrEnum):
    """What a segment is."""

    FIXED = "fixed"
    SLOT = "slot"
    CONTROL = "control"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class Mark:
    """What an author says of a slot. `volatility` None: judged by its name. A `pinned` slot is never moved;
    `reference` is what stands in the place of one that was."""

    volatility: Volatility | None = None
    pinned: bool = False
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a message. `offset` in characters of the message's source; `names` are the variables it reads.

    `marked`: an author said how often it changes; otherwise that was inferred. `anchored` says why it must stay where
    it is whatever is asked, None where nothing holds it.
    """

    kind: SegmentKind
    source: str
    offset: int
    volatility: Volatility = Volatility.FIXED
    cause: Cause | None = None
    names: tuple[str, ...] = ()
    marked: bool = False
    anchored: str | None = None

    @property
    def end(self) -> int:
        """Behind its last character."""
        return self.offset + len(self.source)


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """One message: a role and its text in segments; or `slot`, a variable that holds messages of a call."""

    role: str
    segments: tuple[Segment, ...] = ()
    slot: str | None = None

    @property
    def source(self) -> str:
        """The text of the template."""
        return "".join([segment.source for segment in self.segments])


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A template: its messages, and what its author said of its slots."""

    syntax: Syntax
    messages: tuple[TemplateMessage, ...]
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The variables it reads."""
        found = {name for message in self.messages for segment in message.segments for name in segment.names}
        return frozenset(found | {message.slot for message in self.messages if message.slot is not None})
