"""Which trace a request belongs to: the fields `traceparent` and `tracestate` of W3C Trace Context, read and written.

    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
                 |  trace                            the caller's span  `-- 1: it is sampled
                 `-- version; of later ones the same four parts are read

A field that is not of this form, or stands there twice, is none: a trace of our own begins, and `tracestate`, which
belongs to the other one, ends here.
"""

import random
import re
from dataclasses import dataclass, field
from typing import Final

from gateway.types import Headers

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"

_FORM: Final = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})"
    rb"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.DOTALL,
)
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span. Ids are hex digits, in lower case."""

    trace_id: bytes
    span_id: bytes
    sampled: bool


def parent_of(headers: Headers) -> Parent | None:
    """The span that a request belongs to; None where it says none, or none that can be read. O(fields)."""
    given = [value for name, value in headers if name == TRACEPARENT]
    found = _FORM.fullmatch(given[0]) if len(given) == 1 else None
    if found is None or (found["version"] == b"00" and found["more"] is not None):
        return None
    return Parent(found["trace"], found["span"], bool(int(found["flags"], 16) & _SAMPLED))


@dataclass(slots=True)
class Trace:
    """A request that is traced: its own span, and one for each attempt at an endpoint. Ids as in `Parent`."""

    trace_id: bytes
    parent_id: bytes | None
    span_id: bytes
    dice: random.Random = field(repr=False)
    attempt_ids: list[bytes] = field(default_factory=list)

    def attempt(self, headers: Headers) -> Headers:
        """A further attempt begins: the fields that go with it, which name its span as the caller's. O(fields)."""
        span_id = new_id(self.dice, 64)
        self.attempt_ids.append(span_id)
        ends_here = (TRACEPARENT,) if self.parent_id is not None else (TRACEPARENT, TRACESTATE)
        ours = (TRACEPARENT, b"00-%b-%b-01" % (self.trace_id, span_id))
        return (*(one for one in headers if one[0] not in ends_here), ours)


class Sampler:
    """Which requests are traced: as their caller says, else so many of them by chance."""

    def __init__(self, ratio: float, dice: random.Random) -> None:
        self._ratio = ratio
        self._dice = dice

    def trace_of(self, headers: Headers) -> Trace | None:
        """What a request is traced as; None where it is not."""
        parent, dice = parent_of(headers), self._dice
        if parent is None:
            if dice.random() >= self._ratio:
                return None
            return Trace(new_id(dice, 128), None, new_id(dice, 64), dice)
        return Trace(parent.trace_id, parent.span_id, new_id(dice, 64), dice) if parent.sampled else None


def new_id(dice: random.Random, bits: int) -> bytes:
    """A fresh id of so many bits, as hex digits; never only zeros, which would be none."""
    while not (value := dice.getrandbits(bits)):
        pass
    return b"%0*x" % (bits // 4, value)
