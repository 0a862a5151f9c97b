"""Requests, settlements and prices for tests; each argument left out is ordinary."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing import Attempt, OpenedRequest, Price, PriceBook, Settlement, SettlementState, Usage, UsageFlag
from billing.money import pico_per_token

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def opened(
    request_id: str = "r1",
    *,
    at: datetime = NOON,
    tenant: str = "acme",
    model: str = "llama",
    prompt_tokens_expected: int | None = 1000,
) -> OpenedRequest:
    return OpenedRequest(
        request_id=request_id,
        opened_at=at,
        tenant_id=tenant,
        key_id="key-1",
        share_group=tenant,
        model=model,
        route="/v1/chat/completions",
        stream=True,
        prompt_tokens_expected=prompt_tokens_expected,
    )


def settled(
    request_id: str = "r1",
    usage: Usage | None = Usage(1000, 900, 100),  # noqa: B008 - frozen
    *,
    state: SettlementState = SettlementState.COMPLETE,
    at: datetime = NOON + timedelta(seconds=2),
    flags: Iterable[UsageFlag] = (),
    expected_cached_tokens: int | None = None,
    attempts: tuple[Attempt, ...] = (),
    usage_json: bytes | None = None,
) -> Settlement:
    return Settlement(
        request_id=request_id,
        settled_at=at,
        state=state,
        http_status=200 if state.billable else 502,
        endpoint_id="gpu-a",
        usage=usage,
        usage_json=usage_json,
        convention="openai",
        flags=frozenset(flags),
        expected_cached_tokens=expected_cached_tokens,
        ttft_s=0.05,
        duration_s=2.0,
        attempts=attempts,
    )


def attempt(request_id: str = "r1", ordinal: int = 0, outcome: str = "answered", status: int | None = 200) -> Attempt:
    return Attempt(request_id, ordinal, "gpu-a", NOON, NOON + timedelta(seconds=1), outcome, status)


def rate(per_mtok: str) -> int:
    return pico_per_token(Fraction(Decimal(per_mtok)))


def price(
    input_: str = "1.25",
    cached: str | None = "0.125",
    output: str = "10",
    write: str | None = None,
    *,
    model: str = "llama",
    id_: str = "p1",
    valid_from: datetime = LONG_AGO,
    valid_to: datetime | None = None,
    currency: str = "USD",
) -> Price:
    return Price(
        id=id_,
        model=model,
        currency=currency,
        input_pico=rate(input_),
        output_pico=rate(output),
        valid_from=valid_from,
        valid_to=valid_to,
        cached_input_pico=None if cached is None else rate(cached),
        cache_write_pico=None if write is None else rate(write),
    )


def book(*prices: Price) -> PriceBook:
    return PriceBook("USD", prices or (price(),))
