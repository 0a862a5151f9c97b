"""Records as rows of the tables, the bill of a settlement computed on the way. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from billing.money import split_pico
from billing.prices.book import Prices
from billing.prices.pricing import Price, bill
from billing.types import (
    Attempt,
    Correction,
    CorrectionKind,
    EngineSample,
    KeptChain,
    OpenedRequest,
    Settlement,
    Usage,
    UsageFlag,
)
from billing.usage import checked
from billing.verification.verdicts import is_doubtful
from billing.when import to_us

Row = tuple[object, ...]
"""Values in the order of the columns of a table."""

_NO_USAGE = Usage(None, None, None)


@dataclass(frozen=True, slots=True)
class Fact:
    """What the bill of a request depends on, apart from its usage; and whose it is."""

    opened_at: datetime
    model: str
    tenant_id: str
    key_id: str
    tags: str | None
    """As in the column."""


def request_row(opened: OpenedRequest, owner_id: str) -> Row:
    """Row of `schema.requests`."""
    return (
        opened.request_id,
        to_us(opened.opened_at),
        owner_id,
        opened.tenant_id,
        opened.key_id,
        opened.share_group,
        opened.model,
        opened.route,
        opened.stream,
        opened.prompt_tokens_expected,
        opened.job_id,
        opened.end_user,
        tags_text(opened.tags),
    )


def tags_text(tags: Mapping[str, str] | None) -> str | None:
    """Tags in the one form in which equal ones are equal texts; None where there are none."""
    return json.dumps(tags, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if tags else None


def chain_row(request_id: str, chain: KeptChain) -> Row:
    """Row of `schema.chains`."""
    return (request_id, chain.block_tokens, chain.hashes)


def settlement_row(settlement: Settlement, fact: Fact, prices: Prices) -> Row:
    """Row of `schema.settlements`, priced by the time at which the request was opened."""
    usage, flags = checked(settlement.usage or _NO_USAGE)
    quote = prices.quote(fact.model, fact.tenant_id, fact.opened_at)
    charge = bill(settlement.state, usage, quote, settlement.expected_cached_tokens)
    flags |= settlement.flags | charge.flags
    if is_doubtful(usage.prompt_tokens, usage.cached_tokens, settlement.expected_cached_tokens):
        flags |= {UsageFlag.DISPUTED}
    return (
        settlement.request_id,
        to_us(settlement.settled_at),
        settlement.state.value,
        settlement.http_status,
        settlement.endpoint_id,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        settlement.expected_cached_tokens,
        ",".join(sorted(flags)),
        settlement.convention,
        None if settlement.usage_json is None else settlement.usage_json.decode(),
        settlement.ttft_s,
        settlement.duration_s,
        settlement.prefill_s,
        settlement.decode_s,
        prices.currency if charge.price is None else charge.price.currency,
        *_rates(charge.price),
        *_amount(charge.full_pico),
        *_amount(charge.charged_pico),
        charge.discounted_tokens,
        *_amount(charge.list_pico),
        None if settlement.verdict is None else settlement.verdict.value,
        settlement.miss_reason,
    )


def correction_row(correction: Correction) -> Row:
    """Row of `schema.corrections`."""
    return (
        correction.correction_id,
        to_us(correction.made_at),
        correction.request_id,
        correction.tenant_id,
        correction.key_id,
        correction.model,
        correction.kind.value,
        correction.reason,
        correction.currency,
        *split_pico(correction.full_pico),
        *split_pico(correction.charged_pico),
    )


def late_correction(settlement: Settlement, fact: Fact, prices: Prices) -> Correction | None:
    """What a request cost that had been closed as interrupted; None where that is nothing, or not known."""
    quote = prices.quote(fact.model, fact.tenant_id, fact.opened_at)
    charge = bill(settlement.state, checked(settlement.usage or _NO_USAGE)[0], quote, settlement.expected_cached_tokens)
    if charge.price is None or charge.full_pico is None or charge.charged_pico is None or not settlement.state.billable:
        return None
    return Correction(
        correction_id=f"late-{settlement.request_id}",
        made_at=settlement.settled_at,
        request_id=settlement.request_id,
        tenant_id=fact.tenant_id,
        key_id=fact.key_id,
        model=fact.model,
        kind=CorrectionKind.CORRECTION,
        reason="settled after it had been closed as interrupted",
        currency=charge.price.currency,
        full_pico=charge.full_pico,
        charged_pico=charge.charged_pico,
    )


def sample_row(sample: EngineSample, owner_id: str) -> Row:
    """Row of `schema.engine_samples`."""
    return (
        sample.endpoint_id,
        to_us(sample.sampled_at),
        owner_id,
        sample.generation,
        sample.hit_tokens,
        sample.query_tokens,
    )


def attempt_row(attempt: Attempt) -> Row:
    """Row of `schema.attempts`."""
    return (
        attempt.request_id,
        attempt.ordinal,
        attempt.endpoint_id,
        to_us(attempt.started_at),
        to_us(attempt.ended_at),
        attempt.outcome,
        attempt.status,
    )


def _rates(price: Price | None) -> Row:
    if price is None:
        return (None,) * 5
    return (price.id, price.input_pico, price.cached_input_pico, price.cache_write_pico, price.output_pico)


def _amount(pico: int | None) -> Row:
    return (None, None) if pico is None else split_pico(pico)
