"""The nouns of the demo: conversations, planned requests, what a client saw, what the engines counted."""

from dataclasses import dataclass
from enum import StrEnum


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
    """What the client saw of one request, in seconds from its start."""

    ttft_s: float
    duration_s: float
