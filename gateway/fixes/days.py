"""Timestamps rounded down to their day: as many characters as before, and the same all day long.

    2026-11-30T12:05:11.123Z  ->  2026-11-30T00:00:00.000Z
    Monday, 30 November 2026 at 12:05 PM  ->  Monday, 30 November 2026 at 12:00 AM
    1796040311  ->  1795996800                the day of UTC, whatever the reader's

Only a literal with a date is rounded: of a clock alone nothing would be left. Pure.
"""

import re
from typing import Final

from gateway.fixes.edits import Edit
from prefix_index.layout import Cause, Certainty, spots

_DAY_S: Final = 86_400
_CLOCK: Final = re.compile(
    r"(?P<hour>\d{1,2})(?P<colon>[:时時点點])(?P<minute>\d{1,2})"
    r"(?P<rest>(?:[:分]\d{1,2})?(?:[.,]\d{1,9})?)(?P<half> ?[AaPp]\.?[Mm])?"
)
_DATED: Final = re.compile(r"\d{4}|[年月]")
_DIGIT: Final = re.compile(r"\d")
_SUSPECT: Final = re.compile(r"\d[:时時点點]\d|(?<!\d)1[5-9]\d{8}")
_SECONDS_DIGITS: Final = 10


def rounded_days(text: str) -> list[Edit]:
    """The literals to be rounded, with what they become. Those that say midnight already are none of them. O(text)."""
    found: list[Edit] = []
    at = 0
    for line in text.split("\n"):
        if _SUSPECT.search(line):
            found += [Edit(at + edit.start, at + edit.end, edit.new) for edit in _in_line(line)]
        at += len(line) + 1
    return found


def _in_line(line: str) -> list[Edit]:
    edits = []
    for spot in spots(line):
        if spot.certainty < Certainty.LIKELY:
            continue
        said = line[spot.start : spot.end]
        new = _of_epoch(said) if spot.cause is Cause.EPOCH else _of_time(said) if spot.cause is Cause.TIME else said
        if new != said:
            edits.append(Edit(spot.start, spot.end, new))
    return edits


def _of_time(said: str) -> str:
    clock = _CLOCK.search(said)
    if clock is None or not _DATED.search(said[: clock.start()] + said[clock.end() :]):
        return said
    half = clock["half"] or ""
    hour = "12" if half else "0" * len(clock["hour"])
    if half and len(clock["hour"]) == 1:  # `9:05 AM` would become a character longer
        return said
    zeros = f"{hour}{clock['colon']}{_DIGIT.sub('0', clock['minute'] + clock['rest'])}"
    morning = half.replace("P", "A").replace("p", "a")
    return said[: clock.start()] + zeros + morning + said[clock.end() :]


def _of_epoch(said: str) -> str:
    whole, dot, fraction = said.partition(".")
    if not whole.isdecimal() or len(whole) < _SECONDS_DIGITS:
        return said
    unit = 10 ** (len(whole) - _SECONDS_DIGITS)
    number = int(whole)
    return f"{number - number % (_DAY_S * unit)}{dot}{'0' * len(fraction)}"
