"""Records as rows of the tables, the bill of a settlement computed on the way. Pure."""

import json
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from billing.money import PICO, split_pico
from billing.prices.book import Prices
from billing.prices.pricing import Charge, Price, bill
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
_NO_AMOUNT = (None, None)


class Fact(Struct, frozen=True, gc=False):
    """What the bill of a request depends on, apart from its usage; and whose it is."""

    opened_at: datetime
    opened_at_us: int
    """The same, as in the column."""
    model: str
    tenant_id: str
    key_id: str
    tags: str | None
    """As in the column."""


class Billed(Struct, frozen=True, gc=False):
    """A settlement with its bill: usage after the checks, flags as in the column, the currency of its row."""

    settlement: Settlement
    usage: Usage
    flags: str
    charge: Charge
    currency: str | None


def fact_of(opened: OpenedRequest) -> Fact:
    """What is to be remembered until its settlement."""
    at, tags = opened.opened_at, tags_text(opened.tags)
    return Fact(at, to_us(at), opened.model, opened.tenant_id, opened.key_id, tags)


def request_row(opened: OpenedRequest, fact: Fact, owner_id: str) -> Row:
    """Row of `schema.requests`."""
    return (
        opened.request_id,
        fact.opened_at_us,
        owner_id,
        opened.tenant_id,
        opened.key_id,
        opened.share_group,
        opened.model,
        opened.route,
        int(opened.stream),
        opened.prompt_tokens_expected,
        opened.job_id,
        opened.end_user,
        fact.tags,
        opened.model_asked,
        opened.route_rule,
    )


def tags_text(tags: Mapping[str, str] | None) -> str | None:
    """Tags in the one form in which equal ones are equal texts; None where there are none."""
    return json.dumps(tags, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if tags else None


def chain_row(request_id: str, chain: KeptChain) -> Row:
    """Row of `schema.chains`."""
    return (request_id, chain.block_tokens, chain.hashes)


def billed(settlement: Settlement, fact: Fact, prices: Prices) -> Billed:
    """A settlement priced by the time at which its request was opened."""
    usage, flags = checked(settlement.usage or _NO_USAGE)
    expected_tokens = settlement.expected_cached_tokens
    charge = bill(settlement.state, usage, prices.quote(fact.model, fact.tenant_id, fact.opened_at), expected_tokens)
    if settlement.flags or charge.flags:
        flags |= settlement.flags | charge.flags
    if is_doubtful(usage.prompt_tokens, usage.cached_tokens, expected_tokens):
        flags |= {UsageFlag.DISPUTED}
    currency = prices.currency if charge.price is None else charge.price.currency
    return Billed(settlement, usage, ",".join(sorted(flags)) if flags else "", charge, currency)


def settlement_row(billed: Billed) -> Row:
    """Row of `schema.settlements`."""
    settlement, usage, charge = billed.settlement, billed.usage, billed.charge
    return (
        settlement.request_id,
        to_us(settlement.settled_at),
        str(settlement.state),
        settlement.http_status,
        settlement.endpoint_id,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        settlement.expected_cached_tokens,
        billed.flags,
        settlement.convention,
        None if settlement.usage_json is None else settlement.usage_json.decode(),
        settlement.ttft_s,
        settlement.duration_s,
        settlement.prefill_s,
        settlement.decode_s,
        billed.currency,
        *_rates(charge.price),
        *(_NO_AMOUNT if charge.full_pico is None else divmod(charge.full_pico, PICO)),
        *(_NO_AMOUNT if charge.charged_pico is None else divmod(charge.charged_pico, PICO)),
        charge.discounted_tokens,
        *(_NO_AMOUNT if charge.list_pico is None else divmod(charge.list_pico, PICO)),
        None if settlement.verdict is None else str(settlement.verdict),
        settlement.miss_reason,
        settlement.layout_fixes,
        settlement.changed_segment,
        settlement.lost_tokens,
        settlement.continuations,
        settlement.prefill_endpoint_id,
        settlement.prefill_cached_tokens,
        settlement.decode_cached_tokens,
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
    charge = billed(settlement, fact, prices).charge
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
        attempt.prompt_tokens,
        attempt.cached_tokens,
        attempt.output_tokens,
    )


def _rates(price: Price | None) -> Row:
    if price is None:
        return (None,) * 5
    return (price.id, price.input_pico, price.cached_input_pico, price.cache_write_pico, price.output_pico)
