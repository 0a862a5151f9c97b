"""What a request says of its own urgency, and which class that makes it.

    x-prefixgate-priority: batch        a class by its name    ┐ a lower one than its own: granted
    "service_tier": "flex"              by a value of it       ┘ a higher one: where its tenant may ask for it
    x-prefixgate-deadline-ms: 8000      ┐ how long its client still wants it: the shortest of these
    x-stainless-read-timeout: 600       ┘ (the last is said by the official clients of OpenAI and Anthropic)

Only requests that have to wait, or that go to an engine which is told of priorities, are looked at. What cannot be read
is as if it was not said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.queueing.types import ClassRule
from gateway.types import Headers, InferenceRequest

PRIORITY_HEADER: Final = b"x-prefixgate-priority"
_PATIENCE: Final = {
    b"x-prefixgate-deadline-ms": 0.001,
    b"x-stainless-timeout": 1.0,
    b"x-stainless-read-timeout": 1.0,
}
"""Header fields that tell a time, and its unit in seconds."""


class _Body(msgspec.Struct):
    service_tier: object = None


_body = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class ClassBook:
    """The classes, the highest first, and whose they are: places in `classes` by tenant, key and `service_tier`.
    `asked_by` has, by place, the tenants that may ask for one above their own; `*` are all."""

    classes: Sequence[ClassRule]
    others: int
    tenants: Mapping[str, int]
    keys: Mapping[str, int]
    tiers: Mapping[str, int]
    asked_by: Mapping[int, frozenset[str]]

    def rank_of(self, request: InferenceRequest) -> int:
        """The place of a request's class. O(header fields), and of the body where a class has a `service_tier`."""
        tenant = request.tenant
        own = self.keys.get(tenant.key_id, self.tenants.get(tenant.id, self.others))
        asked = self._asked(request)
        if asked is None or asked >= own:
            return own if asked is None else asked
        may = self.asked_by.get(asked, frozenset())
        return asked if "*" in may or tenant.id in may else own

    def _asked(self, request: InferenceRequest) -> int | None:
        for name, value in request.headers:
            if name == PRIORITY_HEADER:
                named = value.decode("latin-1").strip()
                return next((rank for rank, one in enumerate(self.classes) if one.name == named), None)
        tier = tier_of(request.body) if self.tiers else None
        return None if tier is None else self.tiers.get(tier)


def tier_of(body: bytes) -> str | None:
    """The `service_tier` of a body. O(body), 1 GB/s."""
    try:
        tier = _body.decode(body).service_tier
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # what it is worth, its engine may say
        return None
    return tier if isinstance(tier, str) else None


def patience_s(headers: Headers) -> float:
    """How long its client waits for an answer that has not begun, seconds; infinite where it does not say."""
    shortest = math.inf
    for name, value in headers:
        unit_s = _PATIENCE.get(name)
        if unit_s is not None:
            try:
                said_s = float(value) * unit_s
            except ValueError:
                continue
            if said_s > 0:  # 0 and below are no time; nor is what is no number
                shortest = min(shortest, said_s)
    return shortest
