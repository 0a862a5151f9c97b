"""Does an engine move: what its metrics page says of that, from poll to poll. Pure: the time is an argument.

    waiting   3   3   3   3       requests wait,
    running   8   8   8   8       those that run stay the same,
    tokens   90  90  90  90       no counter of work has moved          since the second page: it stands still
             └───── s ──────┘

A page of an engine that works changes with every step. One that stands still, though requests wait, is that of an
engine that hangs, or of one inside a single long prefill: that is for whoever knows the prompts to tell apart. What a
page does not count is unknown: an engine without counters neither moves nor stands still.

`/health` has no say here: the process that answers it is often not the one that computes.
"""

from backends.types import LoadSample


class Pulse:
    """What the pages of one endpoint say. O(1) each."""

    __slots__ = ("_before", "moved_s", "still_since_s")

    def __init__(self) -> None:
        self._before: LoadSample | None = None
        self.moved_s: float | None = None
        """When a counter of work was last seen to have moved; None: never yet."""
        self.still_since_s: float | None = None
        """Since when requests wait and nothing moves; None where that is not so, or not known."""

    def page(self, sample: LoadSample | None) -> None:
        """A page was read; None: there was none, or it could not be read, which says nothing."""
        before, self._before = self._before, sample
        work, worked = _work(sample), _work(before)
        if sample is None or before is None or not work or not worked:
            self.still_since_s = None
        elif work != worked:
            self.moved_s, self.still_since_s = sample.fetched_at_s, None
        elif not sample.waiting or (sample.running, sample.kv_use) != (before.running, before.kv_use):
            self.still_since_s = None
        elif self.still_since_s is None:
            self.still_since_s = before.fetched_at_s


def _work(sample: LoadSample | None) -> tuple[float, ...]:
    """All counters that move when an engine works, as far as its page has them.

    Requests that are over are none of them where steps are counted: those whose clients left are over too, and an
    engine that hangs would look alive whenever somebody gives it up.
    """
    if sample is None:
        return ()
    steps = sample.finished if sample.steps is None else sample.steps
    return tuple(one for one in (steps, sample.prefix_hits, sample.prefix_queries) if one is not None)
