"""The nouns of billing: what a request was, what it used, how it ended.

    OpenedRequest --> Attempt, Attempt, ... --> Settlement
      who, what         one per upstream call     how it ended, with the engine's Usage

    Usage   = what the engine said: a total with parts inside it, None where it said nothing
    Buckets = the same tokens in four disjoint heaps, each with a price of its own

        prompt_tokens
        |- fresh            computed now
        |- cached           read from the cache
        `- cache_write      computed and kept, where an engine charges for that
        output_tokens       (reasoning tokens are part of it)

Money is integers of pico-units (10^-12 of the currency), times are aware datetimes in UTC, durations are seconds.

A request makes half a dozen of these: as structs each takes a quarter of a microsecond, as frozen dataclasses they took
one to three. They are never part of a cycle, so the collector need not look at them.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct


class SettlementState(StrEnum):
    """How a request ended. Only `COMPLETE` and `PARTIAL` are billed."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """The answer was cut; what is known of it is billed."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The gateway died before the end; what was used is unknown, which is not nothing."""
    REJECTED = "rejected"

    @property
    def billable(self) -> bool:
        """Whether a tenant pays for a request that ended so."""
        return self in (SettlementState.COMPLETE, SettlementState.PARTIAL)


BILLABLE_STATES: Final = tuple(state.value for state in SettlementState if state.billable)
"""As the ledger has them."""


class UsageFlag(StrEnum):
    """What a reader of the bill must know about one request. No value is a part of another."""

    UNREPORTED = "unreported"
    """The engine did not say how much of the prompt was cached: all of it is billed at the input price."""
    INCOMPLETE = "incomplete"
    """A count is unknown and so is not in the amount."""
    CLAMPED = "clamped"
    """Counts contradicted each other, or were negative, and were reduced in the tenant's favour."""
    INVALID = "invalid"
    """A count was no count (a fraction, a text, too large to be true) and is taken as unknown."""
    ESTIMATED = "estimated"
    """Counted by the gateway, since the engine had no chance to report."""
    UNPRICED = "unpriced"
    """The price book has no price for the model at that time: the amount is unknown, not zero."""
    NO_CACHED_PRICE = "no_cached_price"
    """The price has no rate for cached tokens: they are billed at the input price."""
    NO_WRITE_PRICE = "no_write_price"
    """The price has no rate for cache writes: they are billed at the input price."""
    DISPUTED = "disputed"
    """All but one prompt token reported as cached where the index expected little: a known fault of split prefill."""
    NOT_BILLABLE = "not_billable"
    """The request failed or was refused: the amount is zero."""


class Verdict(StrEnum):
    """What the index says of the cached tokens that an engine reported."""

    VERIFIED = "verified"
    ENGINE_HIGHER = "engine_higher"
    ENGINE_LOWER = "engine_lower"
    UNREPORTED = "unreported"


class CorrectionKind(StrEnum):
    """Why an amount is put right by a row of its own."""

    CORRECTION = "correction"
    """What was billed was wrong."""
    CREDIT = "credit"
    """What was billed was right, and something is given back."""
    ADJUSTMENT = "adjustment"
    """Anything else agreed with the tenant."""


class Usage(Struct, frozen=True, gc=False):
    """Tokens as the engine counted them; None = it did not say. `cached` and `cache_write` are inside `prompt`."""

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class UsageReport(Struct, frozen=True, gc=False):
    """Usage after the checks, with the evidence: the engine's own JSON, and the convention by which it was read."""

    usage: Usage | None = None
    raw_json: bytes | None = None
    convention: str | None = None
    flags: frozenset[UsageFlag] = frozenset()


class Buckets(Struct, frozen=True, gc=False):
    """Four disjoint heaps of tokens; None = unknown. Where `cached` is unknown, its tokens are among the fresh."""

    fresh_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None

    @classmethod
    def of(cls, usage: Usage) -> "Buckets":
        """Split checked usage. Never negative for usage whose parts fit into its prompt."""
        fresh = usage.prompt_tokens
        if fresh is not None:
            fresh -= (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
        return cls(fresh, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)


class KeptChain(Struct, frozen=True, gc=False):
    """What a prompt shared with others, and nothing of what it said: 8 bytes for each whole `block_tokens` of it, which
    name them and all before them. Without a hash it was shorter than that."""

    block_tokens: int
    hashes: bytes


class OpenedRequest(Struct, frozen=True, gc=False):
    """A request that is about to be sent. `request_id` is made by the gateway, never by a client or a provider.

    `chain` is None where it is not to be kept, or the prompt's tokens are not known. `job_id` groups the calls of one
    run, `end_user` is a hash of who asked the tenant, `tags` are the tenant's own names and values. `model` is what is
    served and priced; `model_asked` the name that the client used, where it is another one, and `route_rule` the name
    in the configuration of what led from one to the other (at most 64 characters).
    """

    request_id: str
    opened_at: datetime
    tenant_id: str
    key_id: str
    share_group: str
    model: str
    route: str
    stream: bool
    prompt_tokens_expected: int | None
    chain: KeptChain | None = None
    job_id: str | None = None
    end_user: str | None = None
    tags: Mapping[str, str] | None = None
    model_asked: str | None = None
    route_rule: str | None = None


ANSWERED: Final = "answered"
PREFILLED: Final = "prefilled"
"""Of an attempt whose prompt another endpoint went on with."""


class Attempt(Struct, frozen=True, gc=False):
    """One upstream call of a request, the `ordinal`-th from 0. `outcome` is a word of whoever called, of which
    `ANSWERED` and `PREFILLED` mean something to reports.

    The tokens are told where several endpoints wrote one answer: what each computed of its own prompt, which ends with
    what was written before, and wrote. None: they are those of the settlement, or not known.
    """

    request_id: str
    ordinal: int
    endpoint_id: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    status: int | None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Settlement(Struct, frozen=True, gc=False):
    """How a request ended. Carries no money: the ledger prices it by the time at which the request was opened.

    `duration_s` is None where nobody saw the end. `layout_fixes` names what was changed in the prompt on its way, in
    short codes; `changed_segment` the part of it by which it was no longer an earlier one, and `lost_tokens` how many
    cached tokens that cost. None: nothing was, or nobody looked. `continuations` is how often another endpoint went on
    with the answer (None: never). Where one endpoint computed the prompt and another the answer, `prefill_endpoint_id`
    is the first, and the cached tokens are those that either reported; None: one did both, or it was not told.
    """

    request_id: str
    settled_at: datetime
    state: SettlementState
    http_status: int | None
    endpoint_id: str | None
    usage: Usage | None
    usage_json: bytes | None
    convention: str | None
    flags: frozenset[UsageFlag]
    expected_cached_tokens: int | None
    ttft_s: float | None
    duration_s: float | None
    attempts: tuple[Attempt, ...]
    prefill_s: float | None = None
    decode_s: float | None = None
    verdict: Verdict | None = None
    miss_reason: str | None = None
    layout_fixes: str | None = None
    changed_segment: str | None = None
    lost_tokens: int | None = None
    continuations: int | None = None
    prefill_endpoint_id: str | None = None
    prefill_cached_tokens: int | None = None
    decode_cached_tokens: int | None = None


class Correction(Struct, frozen=True, gc=False):
    """A change of a bill, signed, in pico-units. It counts in the period in which it is made.

    `correction_id` is made by us; a second of one id is refused. `request_id` is None where it is about no single
    request.
    """

    correction_id: str
    made_at: datetime
    request_id: str | None
    tenant_id: str
    key_id: str | None
    model: str | None
    kind: CorrectionKind
    reason: str
    currency: str
    full_pico: int
    charged_pico: int


class EngineSample(Struct, frozen=True, gc=False):
    """What an engine's own counters said of its prefix cache at one moment, in prompt tokens since it started.

    `hit_tokens` were found in it, of `query_tokens` that were looked up; None: not told. `generation` is another one
    after each start.
    """

    endpoint_id: str
    sampled_at: datetime
    generation: int
    hit_tokens: int | None
    query_tokens: int | None
