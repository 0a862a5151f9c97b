"""The nouns of a run in which parts fail: faults, what a client saw, what an engine put on the wire, what a ledger has.

All instants are monotonic seconds of the process that drives the run, where their names do not say otherwise.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What is done to a part."""

    KILL = "kill"
    """kill -9; away, then started again at its address, its memory gone."""
    RESTART = "restart"
    """TERM and at once started again: its cache is lost, its address is not."""
    FREEZE = "freeze"
    """SIGSTOP: connections stay open, nothing is answered."""
    RESET = "reset"
    """All its connections are reset, again and again; new ones are taken."""
    SLOW = "slow"
    """Ten times slower."""
    FLAP = "flap"
    """Away and back, a second each."""
    PARTITION = "partition"
    """Packets from and to it are lost, no connection is closed."""
    CUT = "cut"
    """Answers under way break off in the middle of an event."""
    CLOCK = "clock"
    """The wall clock jumps; the monotonic one goes on."""
    DISK_FULL = "disk-full"
    """Nothing more can be written where the ledger is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing done to one part. `gateway`: only as seen by that one (a partition); None: by all."""

    kind: Kind
    part: str
    gateway: str | None = None

    @property
    def name(self) -> str:
        """For people, and as a key."""
        return f"{self.kind} {self.part}" + (f" from {self.gateway}" if self.gateway else "")


@dataclass(frozen=True, slots=True)
class Acted:
    """A fault that was done, until it was undone."""

    fault: Fault
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """Faults at a time: one, or a pair. `recovered_s`: from the end of the faults until all gateways said that all is
    well; None: not in time."""

    acted: tuple[Acted, ...]
    calm_from_s: float
    from_s: float
    until_s: float
    ended_s: float
    recovered_s: float | None

    @property
    def name(self) -> str:
        """For people."""
        return " + ".join(one.fault.name for one in self.acted)


class Outcome(StrEnum):
    """How a request ended for its client."""

    SERVED = "served"
    CUT = "cut"
    """It ended after its first byte and before its end."""
    FAILED = "failed"
    """It was refused, or nobody answered, before its first byte."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of an answer; None: not said."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(slots=True)
class Try:
    """One call of a client to one gateway. `id` is the client's own name of it, which the ledger keeps as the job."""

    id: str
    gateway: str
    began_s: float
    ended_s: float = 0.0
    first_s: float | None = None
    request_id: str | None = None
    endpoint: str | None = None
    status: int | None = None
    body: bytes = b""
    text: str = ""
    usage: Counts = field(default_factory=Counts)
    is_whole: bool = False
    why: str = ""


@dataclass(slots=True)
class Asked:
    """One request of a client: what it asked, the text that was due (None: not known), its tries in their order."""

    id: str
    model: str
    tenant: str
    is_stream: bool
    began_s: float
    due: str | None = None
    tries: list[Try] = field(default_factory=list)
    outcome: Outcome = Outcome.FAILED
    ended_s: float = 0.0

    @property
    def last(self) -> Try | None:
        """The try that decided; None where none was made."""
        return self.tries[-1] if self.tries else None


@dataclass(frozen=True, slots=True)
class Computed:
    """An exchange between a gateway and an engine, as it passed between them: the engine's own word.

    `events` counts events of the stream that carry text; `usage` is what the engine reported, if it came to that;
    `answer_id` is how the engine calls its answer.
    """

    gateway: str
    endpoint: str
    request_id: str
    began_s: float
    ended_s: float
    status: int | None
    body: bytes
    is_whole: bool
    usage: Counts = Counts()
    events: int = 0
    answer_id: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A request as its engine remembers it, by the engine's own name of it. `outcome`: stop, length, abort or lost."""

    endpoint: str
    answer_id: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of the ledger's attempts; `began_wall_s` is the wall clock's, in Unix seconds."""

    endpoint: str
    began_wall_s: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Row:
    """A request in a ledger; `state` is None while it is open. `charged_pico`: what it costs, corrections included;
    None: not billed, or not known. `ledger` is the gateway whose file it is in, or None where all share one;
    `continuations`: how often another endpoint went on with it."""

    request_id: str
    job: str | None
    tenant: str
    state: str | None
    usage: Counts = Counts()
    is_estimated: bool = False
    endpoint: str | None = None
    charged_pico: int | None = None
    is_corrected: bool = False
    ledger: str | None = None
    continuations: int = 0
    attempts: tuple[Attempt, ...] = ()
