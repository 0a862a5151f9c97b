"""The nouns of lint: what a file says, what is wrong with it, and what that costs.

    a source    Part Part Part ...      fixed text and slots, in the order of the prompt         (parts.py judges)
    captures    Asked Asked Asked ...   requests, in the order in which they were sent           (captures.py reads)
                     |
                     v
    Finding     a rule, a place, a cause, the tokens that are computed again for it

Nothing here holds text of a prompt: a finding names slots and expressions of sources, and offsets and digests of
captures. `shown` is the one exception, filled where the caller asked for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from prefix_index.layout import Cause, Volatility

if TYPE_CHECKING:
    from prefix_index.lint.captures import Request

CountTokens = Callable[[str], int]
"""How many tokens a text is."""


class Level(IntEnum):
    """How much a finding matters; they are ordered."""

    NOTE = 1
    """Worth knowing; it costs little, or only sometimes."""
    WARNING = 2
    """Prompts are computed again for it."""
    ERROR = 3
    """Every call computes all of its prompt again."""


class Safety(StrEnum):
    """Whether a fix leaves what the model reads as it was."""

    SAFE = "safe"
    """Nothing that the model reads changes, or only what is not rendered."""
    CONSENT = "consent"
    """The same content in another place or form: answers may differ, so its owner has to agree."""


class Every(StrEnum):
    """What makes a prompt lose its prefix once more."""

    CALL = "call"
    SESSION = "session"
    DAY = "day"
    TENANT = "tenant"
    CHANGE = "change"
    """Whenever somebody changes it: a deployment, a new version of a tool."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that breaks prefixes: what it is, why it does, what to do, and whether that is safe."""

    id: str
    what: str
    why: str
    fix: str
    safety: Safety
    level: Level = Level.WARNING


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where: a file with line and column from 1 and `offset` in characters from 0.

    In captures `request` counts from 1, `part` names what of it (`messages[3]`, `tools[0]`, `system`), and `offset`
    is within that part; line and column are where the request begins.
    """

    path: str
    line: int = 1
    column: int = 1
    offset: int = 0
    request: int | None = None
    part: str = ""

    def text(self) -> str:
        """`file:line:column`, for captures with the request and its part behind."""
        if self.request is None:
            return f"{self.path}:{self.line}:{self.column}"
        return f"{self.path}:{self.line} request {self.request} {self.part}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault at one place.

    `subject` is a slot's name or expression as the source writes it, or digests of what differs. `lost_tokens` is what
    each call after the loss computes again, in whole blocks; None where a source cannot tell. `prompt` is the same for
    findings of one prompt, whose tokens are lost once however many faults it has. `why_lost` says in words what the
    rule cannot know. `calls` is over how many requests a capture lost so much, `of` how many there were.
    """

    rule: Rule
    place: Place
    subject: str = ""
    cause: Cause | None = None
    lost_tokens: int | None = None
    every: Every = Every.CALL
    level: Level = Level.WARNING
    prompt: str = ""
    note: str = ""
    calls: int | None = None
    of: int | None = None
    also: tuple[Place, ...] = ()
    shown: str = field(default="", repr=False)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, or not to its end, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt: fixed text, or a slot whose content comes from elsewhere.

    `text` is the fixed text, or the slot's name as written; `at` its offset in characters in the file. `origin` names
    what a slot was made from (`datetime.now()`) where that is somewhere else; `disorder` what is wrong with the order
    of a list that was put in.
    """

    text: str = field(repr=False)
    at: int
    volatility: Volatility = Volatility.FIXED
    cause: Cause | None = None
    origin: str = ""
    disorder: "Disorder | None" = None
    each: "Disorder | None" = None
    """What is wrong with the order of the list that this is one item of."""
    is_slot: bool = False
    at_import: bool = False
    """Whether it was made once, when a module was imported: another one for each process."""


class Disorder(StrEnum):
    """Why the same items of a list come in another order, or begin elsewhere, in the next request."""

    SHUFFLED = "shuffled"
    SET = "set"
    BY_SCORE = "by score"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a run: block size and least cacheable prefix in tokens, how tokens are counted.

    `hash_key` keys the digests that stand for what captures say: they can be compared within one run, and not be
    looked up in a table of likely texts. `show_text` lets findings carry text.
    """

    block_tokens: int = 16
    minimum_tokens: int = 0
    count_tokens: CountTokens | None = None
    hash_key: bytes = b""
    show_text: bool = False

    def whole_blocks(self, tokens: int) -> int:
        """The tokens of the whole blocks in so many: engines keep no others."""
        return tokens // self.block_tokens * self.block_tokens


@dataclass(frozen=True, slots=True)
class Read:
    """What a file came to: findings, and why it was not read to its end where it was not."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    requests: "list[Request]" = field(default_factory=list, repr=False)
    """Those of a file of captures, in order."""
