"""The nouns of the demo: conversations, planned requests, what a client saw, what the engines counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path


class DemoFailed(Exception):
    """The demo cannot go on; the text says what is wrong and what would help."""


class Kind(StrEnum):
    """What a conversation is about, and so what stands in front of it."""

    CHAT = "chat"
    """Nothing, or a system message of its own."""
    TOOLS = "tools"
    """A list of tools, the same text in each conversation of this kind."""
    DOCUMENT = "document"
    """A long document, the same text in each conversation of this kind."""


class Policy(StrEnum):
    """The policies that are compared, as the gateway's configuration calls them."""

    ROUND_ROBIN = "round_robin"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of one tenant. It ends with what the user says last."""

    id: str
    tenant: str
    kind: Kind
    lang: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One turn of a conversation, ready to be sent: `body` holds the whole history and is the same in every run."""

    conversation: str
    turn: int
    tenant: str
    kind: Kind
    lang: str
    messages: tuple[Message, ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """All requests of a run, in the order in which they start. `concurrency` of them are under way at a time."""

    seed: int
    concurrency: int
    requests: tuple[PlannedRequest, ...]


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What the engines would have to hold to compute nothing twice, in blocks; and the sizes of the prompts."""

    blocks: int
    block_size: int
    prompt_tokens: int
    longest_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Totals from an engine's metrics page. Tokens, seconds."""

    prompt_tokens: int
    cached_tokens: int
    prefill_s: float

    def __add__(self, other: "EngineCounters") -> "EngineCounters":
        return EngineCounters(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.prefill_s + other.prefill_s,
        )

    def __sub__(self, other: "EngineCounters") -> "EngineCounters":
        return EngineCounters(
            self.prompt_tokens - other.prompt_tokens,
            self.cached_tokens - other.cached_tokens,
            self.prefill_s - other.prefill_s,
        )

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were not found in the cache."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Answered:
    """What the client saw of one request: which engine took it, and times in seconds from its start."""

    engine_id: str
    ttft_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """One policy's run: what the engines counted, what the ledger holds, what the clients saw."""

    policy: Policy
    requests: int
    requests_by_engine: Mapping[str, int]
    engines: EngineCounters
    ledger_cached_tokens: int
    ttft_p50_s: float
    ttft_p90_s: float
    wall_s: float
    began_at: datetime
    ended_at: datetime

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that the engines took from their caches."""
        return self.engines.cached_tokens / self.engines.prompt_tokens if self.engines.prompt_tokens else 0.0

    @property
    def ledger_agrees(self) -> bool:
        """Whether the ledger has the engines' own sum of cached tokens, to the token."""
        return self.ledger_cached_tokens == self.engines.cached_tokens


@dataclass(frozen=True, slots=True)
class BillLine:
    """What one tenant used and owes; amounts are exact decimal text in `currency`."""

    tenant: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    full_price: str
    charged: str
    saved: str
    currency: str


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything that the demo found out. `ledger` is that of the prefix-aware run, while the demo runs."""

    seed: int
    model: str
    concurrency: int
    working_set: WorkingSet
    kv_blocks: int
    runs: tuple[RunResult, ...]
    bill: tuple[BillLine, ...]
    total: BillLine
    ledger: Path

    def run(self, policy: Policy) -> RunResult:
        """The run of a policy."""
        return next(one for one in self.runs if one.policy is policy)

    @property
    def computed_ratio(self) -> float:
        """Prompt tokens computed with prefixes known, for each one computed by round robin."""
        prefix, in_turn = self.run(Policy.PREFIX), self.run(Policy.ROUND_ROBIN)
        return prefix.engines.computed_tokens / max(in_turn.engines.computed_tokens, 1)

    @property
    def ledger_agrees(self) -> bool:
        """Whether the ledger agrees with the engines in every run."""
        return all(one.ledger_agrees for one in self.runs)
