"""Is a message of a publisher new, seen already, ahead of a gap, or the word of another process?

    live      0 1 2 . . 5 6 7 8        PUB loses what nobody reads: 3 and 4 are missing
    replay            3 4 5 6          asked for from 3; ends wherever the publisher is by then
                          ^ ^          5 and 6 come on both roads

Numbers count from 0 in each process. A number below the expected one is therefore either a second copy or the sign of
a new process, and nothing in the message tells which; the road does. **ZeroMQ keeps the order of a publisher's
messages and sends none twice, so numbers on the live road only rise: one that does not rise is a new process.** One
that rises and is still below the expected number was overtaken by a replay. A replay says nothing of processes:
whatever it repeats is a copy. (To take every low number but 0 for a copy, as is often done, loses the restart whose
first messages nobody read.)

What numbers cannot show: a process that was replaced, and whose successor is already past the old number when we hear
of it. Whoever owns the endpoint notices that, by its start time.
"""

from enum import StrEnum


class Arrival(StrEnum):
    """What a message's number says.

    **Only IN_ORDER takes the message**: after GAP or RESTARTED, ask again once that is dealt with.
    """

    IN_ORDER = "in_order"
    """The next one: apply it."""
    DUPLICATE = "duplicate"
    """Applied before: drop it."""
    GAP = "gap"
    """Messages from `expected` on are missing: replay them and ask again, or start anew and `jump`."""
    RESTARTED = "restarted"
    """Another process speaks: start anew and ask again; it is in order, or a gap from 0 on."""


class SequenceTracker:
    """The numbers of one publisher (one source, one rank). O(1) each.

    `expected` is the number that comes next: 0 before any message, so that one who listens late asks for the rest.
    """

    __slots__ = ("_asked", "_live", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._live = -1
        self._asked = -1

    def feed(self, sequence: int, *, last: int | None = None, replayed: bool = False) -> Arrival:
        """What to do with message `sequence`, or with messages `sequence` to `last` that came as one.

        `replayed` says that it came as the answer to a request for a replay.
        """
        end = sequence if last is None else last
        if not replayed:
            if sequence <= self._live and sequence != self._asked:
                self.restart()
                return Arrival.RESTARTED
            self._live = end
            self._asked = sequence if sequence > self.expected else -1
        if sequence > self.expected:
            return Arrival.GAP
        if sequence < self.expected:
            return Arrival.DUPLICATE
        self.expected = end + 1
        return Arrival.IN_ORDER

    def jump(self, sequence: int, *, last: int | None = None) -> None:
        """Take message `sequence` (to `last`), whatever was expected: what is missing is given up."""
        self.expected = (sequence if last is None else last) + 1

    def restart(self) -> None:
        """Expect a new process, which counts from 0."""
        self.expected = 0
        self._live = self._asked = -1
