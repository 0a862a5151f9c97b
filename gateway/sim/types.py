"""The nouns of the simulator: a load, what a router may see, and what a policy is.

    Workload ──SimRequest──> runner ──Policy.choose(request, View)──> engine of that number
                               ^                                          |
                               └── sent, first_token, ended  <────────────┘

A policy is everything that one router keeps: what it remembers of prompts, how it counts load. It never sees an engine,
only the `View`: its own clock, what it polled, who lives, and, for those that follow KV events, who has which blocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prefix_index import Chain


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request of a load. `number` counts from 0 in the order of the load; `at_s` is when it arrives (open loop).

    `chain` names its whole blocks. `session` is the conversation or client it belongs to, "" where unknown: policies
    that stick go by it. `after` is the number of an earlier request that must end first, and `think_s` how long after
    that this one is sent: used instead of `at_s` where a load is run as a closed loop.
    """

    number: int
    at_s: float
    chain: Chain
    output_tokens: int
    session: str = ""
    tenant: str = ""
    after: int | None = None
    think_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt, the partial last block included."""
        return self.chain.prompt_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of `at_s`; the iterable may be lazy and is read once a run (make it re-iterable).

    `closed_loop`: each request with an `after` is sent `think_s` after that one's end. `most_in_flight`: no more than
    so many at once, the others wait their turn (None: no bound).
    """

    name: str
    block_size: int
    requests: Iterable[SimRequest]
    closed_loop: bool = False
    most_in_flight: int | None = None


@dataclass(slots=True)
class EndpointView:
    """One endpoint as a router sees it. `running`, `waiting` and `kv_use` (0 to 1) are as last polled from its metrics;
    `in_flight` counts what this router has sent there and what has not ended."""

    number: int
    id: str
    capacity_tokens: int
    block_size: int
    alive: bool = True
    running: int = 0
    waiting: int = 0
    kv_use: float = 0.0
    in_flight: int = 0


class View(Protocol):
    """What one router may look at when it decides."""

    @property
    def now_s(self) -> float:
        """The virtual clock."""
        ...

    @property
    def endpoints(self) -> Sequence[EndpointView]:
        """All endpoints by number, the dead ones included."""
        ...

    @property
    def version(self) -> int:
        """Another number whenever anything in `endpoints` may have changed but for `in_flight`."""
        ...

    def cached_blocks(self, endpoint: int, chain: Chain) -> int:
        """The leading run of `chain` that the endpoint holds, as its KV events tell: for precise policies only."""
        ...


class Policy(Protocol):
    """One router's way of choosing. All calls are plain; a policy owns what it remembers."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        ...

    def choose(self, request: SimRequest, view: View) -> int:
        """The number of an endpoint that is alive; there is at least one."""
        ...

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """The request was sent where `choose` said."""
        ...

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """The first token came; the engine reports so many cached tokens."""
        ...

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """The request has ended there, whole or not; called once for each `sent`."""
        ...

    def restarted(self, endpoint: int, now_s: float) -> None:
        """The endpoint came (back), with an empty cache."""
        ...
