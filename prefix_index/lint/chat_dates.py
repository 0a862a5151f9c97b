"""What a chat template writes of its own: one request, rendered at two times, and compared.

monday 09:15    ...Cutting Knowledge Date: ... Today Date: 02 Mar 2026 ... You are ...
tuesday 18:47   ...                            Today Date: 03 Mar 2026 ...
                                                           ^ everything from here on is computed again
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from prefix_index.layout import Cause
from prefix_index.lint.rules import TEMPLATE_DATE
from prefix_index.lint.types import Asked, Every, Finding, Level, Place

Rendered = Callable[[datetime], Sequence[int]]
"""The token ids of one request, as rendered at a time."""

MORNING: Final = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)
LATER_THAT_DAY: Final = MORNING + timedelta(hours=9, minutes=32)
NEXT_DAY: Final = LATER_THAT_DAY + timedelta(days=1)


def template_dates(place: Place, rendered: Rendered, asked: Asked) -> Finding | None:
    """Whether a request's tokens depend on when it is rendered. Renders it three times, or twice."""
    first = rendered(MORNING)
    every, other = Every.CALL, rendered(LATER_THAT_DAY)
    if list(other) == list(first):
        every, other = Every.DAY, rendered(NEXT_DAY)
    if list(other) == list(first):
        return None
    at = next((at for at, (one, two) in enumerate(zip(first, other, strict=False)) if one != two), len(first))
    lost = asked.whole_blocks(len(first) - asked.whole_blocks(at))
    return Finding(
        TEMPLATE_DATE,
        place,
        subject=f"token {at}",
        cause=Cause.DATE if every is Every.DAY else Cause.TIME,
        lost_tokens=lost,
        every=every,
        level=TEMPLATE_DATE.level if lost else Level.NOTE,
        note=f"from token {at} of {len(first)} on",
    )
