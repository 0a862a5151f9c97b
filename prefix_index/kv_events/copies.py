"""How often each memory has each block: one byte a block for each memory and group of layers.

    plane (level 0, group 0)   slot -> copies        a block's level is the nearest memory of which **all** groups
    have it plane (level 0, group 1)   slot -> copies plane (level 1, group 0)   slot -> copies

A group that is not named is group 0: engines that have one group do not always name it. Groups become known with their
first block; those of an engine all do in its first batch.
"""

LEVELS = 3
"""0 the memory that it computes from, 1 the host's, 2 disks and other servers."""

NOWHERE = LEVELS
"""The level of what no memory has."""

MAX_PLANES = 64
"""Engines have a handful; more are not believed."""

_MAX_COPIES = 255
"""More are not counted, so that such a block is given up too early rather than too late."""


class Copies:
    """Counts of copies for each slot. `held[slot]` is in how many planes it is. Every call is O(planes) at most."""

    __slots__ = ("_counted", "_levels", "_planes", "held")

    def __init__(self, *, counted: bool) -> None:
        self._counted = counted
        self._planes: dict[tuple[int, int], bytearray] = {}
        self._levels: tuple[list[bytearray], ...] = tuple([] for _ in range(LEVELS))
        self.held = bytearray()

    @property
    def size_bytes(self) -> int:
        """Memory of all planes."""
        return len(self.held) * (1 + len(self._planes))

    def make_room(self, slots: int) -> None:
        """Let all slots below `slots` be counted."""
        new = bytes(slots - len(self.held))
        for counts in (self.held, *self._planes.values()):
            counts.extend(new)

    def meet(self, level: int, group: int | None) -> bool:
        """Whether blocks are less than whole now, in a memory that has one group more. A new memory has none yet."""
        groups = len(self._levels[level])
        self._plane(level, group or 0)
        return 0 < groups < len(self._levels[level])

    def add(self, slot: int, level: int, group: int | None) -> None:
        """One copy more."""
        plane = self._plane(level, group or 0)
        if plane is None:
            return
        copies = plane[slot]
        if not copies:
            self.held[slot] += 1
        if not copies or (self._counted and copies < _MAX_COPIES):
            plane[slot] = copies + 1

    def take(self, slot: int, level: int, group: int | None) -> None:
        """One copy less, where there is one."""
        plane = self._planes.get((level, group or 0))
        if plane is not None and plane[slot]:
            plane[slot] -= 1
            if not plane[slot]:
                self.held[slot] -= 1

    def take_all(self, slot: int) -> None:
        """No copies anywhere."""
        for plane in self._planes.values():
            plane[slot] = 0
        self.held[slot] = 0

    def level(self, slot: int) -> int:
        """The nearest memory that has the block whole, or NOWHERE."""
        if self.held[slot]:
            for level, planes in enumerate(self._levels):
                for plane in planes:
                    if not plane[slot]:
                        break
                else:
                    if planes:
                        return level
        return NOWHERE

    def _plane(self, level: int, group: int) -> bytearray | None:
        plane = self._planes.get((level, group))
        if plane is None and len(self._planes) < MAX_PLANES:
            plane = self._planes[level, group] = bytearray(len(self.held))
            self._levels[level].append(plane)
        return plane
