"""The nouns of waiting: a request that waits, the class it waits in, and why one may not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from prefix_index import HASH_BYTES


class WaitShed(StrEnum):
    """Why a request may not wait, or not any longer."""

    CLASS_FULL = "class_full"
    """As many of its class wait as may."""
    CLASS_BYTES = "class_bytes"
    """Their bodies are as long as they may be."""
    TENANT_FULL = "tenant_full"
    """As many of its tenant wait as may."""
    TENANT_BYTES = "tenant_bytes"
    HOPELESS = "hopeless"
    """What waits before it takes longer than it may wait, as fast as that is served at present."""
    EXPIRED = "expired"
    """It has waited as long as it may."""
    STOPPING = "stopping"
    """The gateway stops, and its turn would not have come before."""

    @property
    def is_tenants_own(self) -> bool:
        """Whether others of its class may still wait."""
        return self in (WaitShed.TENANT_FULL, WaitShed.TENANT_BYTES)


class Went(StrEnum):
    """Why it was a request's turn."""

    IN_ORDER = "in_order"
    PREFIX = "prefix"
    """The endpoint has its prefix, or another has that of the one before it."""
    SHARE = "share"
    """Its class is a lower one, and was owed its share."""


class Fit(Enum):
    """What sending a request to an endpoint does to what caches hold, best first."""

    HERE = 0
    NOWHERE = 1
    ELSEWHERE = 2


@dataclass(frozen=True, slots=True)
class ClassRule:
    """A priority class. `share`: of what is served while it waits, the part that it is owed, 0 to 1."""

    name: str
    max_wait_s: float
    max_requests: int
    max_bytes: int
    share: float


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that waits. `rank` is the place of its class, 0 the highest; `endpoints` are those that may serve it.

    `prompt_tokens` are known to be cached in part: `cached` has how many of them where. `output_tokens` is what its
    answer counts for; `again`: it had its turn, and was not served. `number`, in the order of arrival, and `passed`,
    how often another went first, are the order's. `hashes` is the chain of its blocks of `block_size` tokens, where it
    has one: prompts of which a hash is the same are the same up to there.
    """

    tenant: str
    rank: int
    prompt_tokens: int
    endpoints: frozenset[str]
    cached: Mapping[str, int] = field(default_factory=dict)
    output_tokens: int = 0
    body_bytes: int = 0
    again: bool = False
    hashes: bytes = b""
    block_size: int = 1
    number: int = 0
    passed: int = 0
    least_cost: int = field(init=False)
    """What it makes the endpoint compute that has most of its prompt."""

    def __post_init__(self) -> None:
        self.serve_at(self.endpoints)

    def serve_at(self, endpoints: frozenset[str]) -> None:
        """These may serve it from now on."""
        self.endpoints = endpoints
        most = max((self.cached.get(endpoint, 0) for endpoint in endpoints), default=0)
        self.least_cost = self._cost(most)

    def cost_at(self, endpoint_id: str) -> int:
        """What it makes an endpoint compute, in tokens; at least 1."""
        return self._cost(self.cached.get(endpoint_id, 0))

    def _cost(self, cached_tokens: int) -> int:
        return max(self.prompt_tokens - cached_tokens, 0) + max(self.output_tokens, 1)

    @property
    def half_tokens(self) -> int:
        """As many leading tokens, in whole blocks, as are more than half of the prompt."""
        return (self.prompt_tokens // (2 * self.block_size) + 1) * self.block_size

    def begins_as(self, other: "Ticket") -> bool:
        """Whether more than half of its prompt is the beginning of another's. O(1): a hash names all before it."""
        end = self.half_tokens // self.block_size * HASH_BYTES
        mine = self.hashes[end - HASH_BYTES : end]
        return len(mine) == HASH_BYTES and mine == other.hashes[end - HASH_BYTES : end]

    def fit(self, endpoint_id: str) -> Fit:
        """Whether more than half of its prompt lies there, else somewhere else among those that may serve it."""
        half = self.prompt_tokens / 2
        if self.cached.get(endpoint_id, 0) > half:
            return Fit.HERE
        held = any(tokens > half and name in self.endpoints for name, tokens in self.cached.items())
        return Fit.ELSEWHERE if held else Fit.NOWHERE


@dataclass(frozen=True, slots=True)
class Pick:
    """Whose turn it is, at which endpoint, why, and what that counts for."""

    ticket: Ticket
    endpoint_id: str
    went: Went
    cost_tokens: int
