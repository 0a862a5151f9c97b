"""What policies are made of: a rule that chooses, and memories that are told what became of it.

    Composed("smg", rule, (requests, tree))      choose -> rule;   sent, first_token, ended, restarted -> each memory

A rule reads the View and its own memories; a memory never chooses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from backends.perf import PerfModel
from gateway.sim.types import EndpointView, SimRequest, View


@dataclass(frozen=True, slots=True)
class PolicyArgs:
    """What a policy may know of a fleet before it sees it: how many endpoints at the start (more may join), how many
    tokens the KV cache of each keeps, in blocks of how many; the seed of its dice; and the speed that was measured
    beforehand, for those that ask for such a profile."""

    endpoints: int
    seed: int = 0
    capacity_tokens: int = 19_208 * 16
    block_size: int = 16
    perf: PerfModel = field(default_factory=PerfModel)

    @property
    def capacity_blocks(self) -> int:
        """The KV cache of one endpoint, in blocks."""
        return self.capacity_tokens // self.block_size


class Rule(Protocol):
    """How one router chooses."""

    def choose(self, request: SimRequest, view: View) -> int:
        """The number of an endpoint that is alive; there is at least one."""
        ...


class Memory(Protocol):
    """Something that a router keeps of the requests it sent; the calls are those of `Policy`."""

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """The request was sent there."""
        ...

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Its prompt is computed."""
        ...

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """It has ended there; once for each `sent`."""
        ...

    def restarted(self, endpoint: int, now_s: float) -> None:
        """The endpoint came (back), with an empty cache."""
        ...


class Composed:
    """A policy: a rule and its memories, under the name that tables give it."""

    def __init__(self, name: str, rule: Rule, memories: Sequence[Memory] = ()) -> None:
        self._name = name
        self.memories = tuple(memories)
        self.choose = rule.choose

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self._name

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Told to every memory."""
        for memory in self.memories:
            memory.sent(request, endpoint, now_s)

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Told to every memory."""
        for memory in self.memories:
            memory.first_token(request, endpoint, now_s, cached_tokens)

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Told to every memory."""
        for memory in self.memories:
            memory.ended(request, endpoint, now_s)

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Told to every memory."""
        for memory in self.memories:
            memory.restarted(endpoint, now_s)


def live(endpoints: Sequence[EndpointView]) -> list[EndpointView]:
    """Those that are alive, by number. O(endpoints)."""
    return [endpoint for endpoint in endpoints if endpoint.alive]


def next_live(endpoints: Sequence[EndpointView], start: int) -> int:
    """The first endpoint that is alive, from number `start` on and round again. O(dead ones met)."""
    total = len(endpoints)
    for step in range(total):
        endpoint = endpoints[(start + step) % total]
        if endpoint.alive:
            return endpoint.number
    raise LookupError(f"none of {total} endpoints is alive, so a policy has nothing to choose from")


def least(costs: Iterable[tuple[float, int]], rng: Random) -> int:
    """The number of the lowest (cost, number); the dice choose among equal costs. O(numbers)."""
    pairs = list(costs)
    lowest = min(pairs)[0]
    equal = [number for cost, number in pairs if cost == lowest]
    return equal[0] if len(equal) == 1 else rng.choice(equal)


def dice(seed: int) -> Random:
    """The dice of one router."""
    return Random(seed)  # noqa: S311 - a load is spread, no secret is made
