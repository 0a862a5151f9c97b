"""What a pipeline is made of: the objects that the composition root has built, and what the configuration fixes."""

import random
from dataclasses import dataclass

from backends import Deadlines, Engines
from billing import Ledger
from gateway.attempts import Attempts
from gateway.decision_log import DecisionLog
from gateway.disaggregation import Splitter
from gateway.exchange import Clocks
from gateway.fleet import Fleet
from gateway.hourly_costs import HourlyCosts
from gateway.limits import Limits
from gateway.next_turn import NextTurns
from gateway.perf_book import PerfBook
from gateway.planning import Planner
from gateway.prewarm import Prewarmer
from gateway.receipts import Receipts
from gateway.response_owners import ResponseOwners
from gateway.scheduling import Chooser
from gateway.settling import Settler
from gateway.telemetry import Telemetry
from gateway.timing import NO_TIMING, TimingHeader
from gateway.tracing import Tracer
from gateway.turns import Turns
from prefix_index import SharedIndex


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the configuration fixes for every request."""

    deadlines: Deadlines
    choose: Chooser
    inject_salt: bool
    costs: HourlyCosts
    """What endpoints cost, for those who choose."""
    chain_tokens: int | None = None
    """The ledger keeps a hash for each so many tokens of a prompt; None: of no prompt."""
    timing: TimingHeader = NO_TIMING
    continuations: int = 0
    """How often another endpoint goes on with a stream whose endpoint died."""
    one_call: bool = False
    """A request is sent once, by who carries the calls: what comes of it is the answer, whatever it is."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects a pipeline works with."""

    planner: Planner
    index: SharedIndex
    fleet: Fleet
    perf: PerfBook
    receipts: Receipts
    client: Engines
    ledger: Ledger
    limits: Limits
    settler: Settler
    next_turns: NextTurns
    prewarmer: Prewarmer
    telemetry: Telemetry
    decisions: DecisionLog
    responses: ResponseOwners
    attempts: Attempts
    clocks: Clocks
    rng: random.Random
    tracer: Tracer | None = None
    turns: Turns | None = None
    """Whose turn it is while endpoints are full; None where none has a bound."""
    splitter: Splitter | None = None
    """Has prompts computed at other endpoints than those that answer; None: nobody does."""
