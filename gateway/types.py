"""The nouns of the gateway: one request as data, from the client's bytes to the settled record.

bytes --edge--> InferenceRequest --tokens, blocks--> Plan --scheduling--> Decision --relay--> Outcome
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from prefix_index import Chain
from prefix_index.prompt import PromptView

RequestId = NewType("RequestId", str)
"""Made by the gateway, one for each client request; ids from clients and engines are attributes only."""

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)

Headers = tuple[tuple[bytes, bytes], ...]


class Route(StrEnum):
    """The inference paths; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class Reason(StrEnum):
    """Why a decision had, or had not, a prefix to go by. Each request has exactly one."""

    PREFIX_HIT = "prefix_hit"
    """The chosen endpoint is expected to hold at least one block, and no other that could be chosen more."""
    PREFIX_ELSEWHERE = "prefix_elsewhere"
    """Another endpoint holds more, but waiting there costs more seconds than computing here."""
    NO_PREFIX = "no_prefix"
    """No endpoint holds the first block."""
    SHORT_PROMPT = "short_prompt"
    """The prompt has no whole block that could be reused."""
    POLICY = "policy"
    """The policy in force does not look at prefixes."""
    UNSUPPORTED_CONTENT = "unsupported_content"
    """Images, audio or another part whose tokens are not known here."""
    NOT_TOKENIZED = "not_tokenized"
    """The prompt could not be turned into token ids: no template for it, or the template refused it."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who is billed and isolated.

    `share_group` names the tenants who may hit each other's prefixes; `salt` is what the engine is given to keep
    groups apart (hex text, at most 64 characters).
    """

    id: TenantId
    key_id: KeyId
    share_group: str
    salt: str


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One client request: a parsed view and the original bytes.

    `client_wants_usage` says whether the client asked for the usage event of a stream itself. `max_output_tokens`
    is None where the client set no limit. `started_s` is monotonic, `opened_at` wall time in UTC.
    """

    id: RequestId
    tenant: Tenant
    route: Route
    path: str
    model: str
    stream: bool
    client_wants_usage: bool
    max_output_tokens: int | None
    prompt: PromptView
    body: bytes = field(repr=False)
    headers: Headers = field(repr=False)
    started_s: float
    opened_at: datetime


class TokenSource(StrEnum):
    """Where the token ids of a prompt came from, best first."""

    LOCAL = "local"
    ENGINE = "engine"
    BYTES = "bytes"


_TOKENS_UNKNOWN = frozenset({Reason.UNSUPPORTED_CONTENT, Reason.NOT_TOKENIZED})


@dataclass(frozen=True, slots=True)
class Plan:
    """A prompt ready to be matched. `no_affinity` is set where the chain must not be believed, and says why."""

    chain: Chain
    source: TokenSource
    no_affinity: Reason | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """The engine's own count, or None where it was not tokenised as the engine would."""
        unknown = self.source is TokenSource.BYTES or self.no_affinity in _TOKENS_UNKNOWN
        return None if unknown else self.chain.prompt_tokens
