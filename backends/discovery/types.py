"""The nouns of discovery: what a source says there is.

source --found([a, b])--> listing, as a whole --> membership
       --failed("why")-->  the listing before stays
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Traits:
    """What a source says of an endpoint beyond where it is; None where it does not."""

    role: str | None = None
    model: str | None = None
    gpu_cost_per_hour: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One endpoint as a source says it. `id` is the source's own name for it, fit to be an id; `draining`: it is there,
    and is to get no new requests. `settings` are for who uses it, and opaque here; a change of them is a change of the
    endpoint."""

    url: str
    id: str | None = None
    draining: bool = False
    traits: Traits = Traits()
    settings: Mapping[str, object] = field(default_factory=dict, hash=False)


class Report(Protocol):
    """Where a source says what it has. Plain calls."""

    def found(self, listing: Sequence[Found]) -> None:
        """All that there is now, in place of what was said before."""

    def failed(self, why: str) -> None:
        """It cannot be told at present; `why` is short, and without secrets. What was said before stays."""


class Source(Protocol):
    """Something that knows endpoints."""

    @property
    def name(self) -> str:
        """What it is called in metrics and in `/health`; unique among the sources."""

    async def run(self, report: Report) -> None:
        """Say what there is, soon and at each change, until cancelled. Raises nothing for what goes wrong out there."""
