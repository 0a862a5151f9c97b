"""The nouns of fixes: what may be changed in a request on its way, under which rule, and what was."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.types import Route


class Fix(StrEnum):
    """One kind of change; the value is its name in the configuration, in headers, metrics and the ledger."""

    COMPACT = "compact"
    """White space between the tokens of the JSON goes. No engine renders it: a model sees nothing of this."""
    DAY = "day"
    """A timestamp in the system text is rounded down to its day."""
    TOOLS = "tools"
    """A set of tools has one order, whatever order it came in."""
    LINES = "lines"
    """Lines of the system text that change from call to call go to its end, or into the last user message."""


SAFE_FIXES = (Fix.COMPACT,)
"""Those of which a model sees nothing."""
ALL_FIXES = tuple(Fix)
"""In the order in which they are made."""


class Mode(StrEnum):
    """How far a rule goes."""

    OFF = "off"
    SHADOW = "shadow"
    """Nothing is changed; what it would gain is estimated."""
    SAFE = "safe"
    CONSENTED = "consented"
    """The tenant has agreed that its prompts are changed."""


class ToolsOrder(StrEnum):
    """Which order a set of tools has."""

    NAME = "name"
    FIRST_SEEN = "first_seen"
    """As the set came first, on any replica."""


class VolatileTo(StrEnum):
    """Where lines go that change."""

    SYSTEM_END = "system_end"
    LAST_USER = "last_user"


@dataclass(frozen=True, slots=True)
class How:
    """What is changed, and how. `tools_in` is the order of a known set of tools; None: by name."""

    route: Route
    fixes: tuple[Fix, ...]
    volatile_to: VolatileTo = VolatileTo.SYSTEM_END
    most_lines: int = 4
    tools_in: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A body after its fixes, and which of them changed anything: none, and the body is the one that came."""

    body: bytes
    fixes: tuple[Fix, ...] = ()
