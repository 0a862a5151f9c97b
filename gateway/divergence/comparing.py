"""Two prompts as parts: which is the first that differs, and how much behind it is as it was. Pure, O(messages)."""

from collections.abc import Sequence
from typing import Final

from gateway.divergence.fingerprints import MOST_MESSAGES, UNREAD, Fingerprint
from gateway.divergence.types import Change, Compared

LEAST_RUN: Final = 2
"""Messages one after another that must be as before, elsewhere, for a conversation to have been shifted: a single one
may be a `yes` that was said twice."""


def compared(now: Fingerprint, before: Fingerprint, shared_chars: float) -> Compared:
    """The first part that differs. `shared_chars` is where their tokens part: it decides where several parts differ."""
    if before is UNREAD:
        return Compared(Change.GROWN, 0)
    system, tools = now.system != before.system, now.tools != before.tools
    if system and tools:  # most templates write tools behind the system prompt
        tools = shared_chars > now.system_chars
        system = not tools
    if system:
        same_tools = now.tools != 0 and now.tools == before.tools
        return Compared(Change.SYSTEM, None, _aligned(now, before, 0), same_tools)
    if tools:
        same_set = now.toolset == before.toolset
        change = Change.TOOL_ORDER if same_set else Change.TOOL_SET
        return Compared(change, None, _aligned(now, before, 0), same_set)
    if now.other != before.other:
        return Compared(Change.OPTIONS, None, _aligned(now, before, 0))
    first = _first_difference(now.hashes, before.hashes)
    if first < min(len(now.hashes), len(before.hashes)):
        return _in_messages(now, before, first)
    if len(now.hashes) != len(before.hashes) or first == MOST_MESSAGES:
        return Compared(Change.GROWN, first)
    return Compared(Change.TEMPLATE, None, now.all_chars)


def _in_messages(now: Fingerprint, before: Fingerprint, first: int) -> Compared:
    if first + 1 == len(now.hashes):  # the last message, as it mostly is
        return Compared(Change.MESSAGE, first)
    for start in (first, first + 1):  # the front was dropped, or a summary took its place
        moved, run = _longest_run(now.hashes, before.hashes, start, first)
        if run >= LEAST_RUN:
            change = Change.WINDOW if moved > start else Change.HISTORY
            return Compared(change, first, sum(now.chars[start : start + run]))
    equal = _aligned(now, before, first + 1)
    return Compared(Change.HISTORY if equal else Change.MESSAGE, first, equal)


def _longest_run(now: Sequence[int], before: Sequence[int], start: int, first: int) -> tuple[int, int]:
    """Where in `before`, from `first` on and not at `start`, the longest run begins that `now` has at `start`."""
    best, most = 0, 0
    if start >= len(now):
        return best, most
    wanted = now[start]
    for at in range(first, len(before)):
        if before[at] != wanted or at == start:
            continue
        run = 1
        while start + run < len(now) and at + run < len(before) and now[start + run] == before[at + run]:
            run += 1
        if run > most:
            best, most = at, run
    return best, most


def _aligned(now: Fingerprint, before: Fingerprint, start: int) -> int:
    """Characters of messages from `start` on that are as before, at the same place."""
    if start >= len(now.hashes) or start >= len(before.hashes):
        return 0
    if len(now.hashes) == 1:
        return now.chars[0] if now.hashes[0] == before.hashes[0] else 0
    pairs = zip(now.hashes[start:], before.hashes[start:], now.chars[start:], strict=False)
    return sum([chars for one, other, chars in pairs if one == other])


def _first_difference(now: Sequence[int], before: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(now, before, strict=False)):
        if one != other:
            return place
    return min(len(now), len(before))
