"""What our own routing cost a tenant, given back: never more than was paid, never twice."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from billing import Correction, Price, RowRefused, SettlementState, Usage, open_ledger
from billing.reading import reading
from billing.verification.credits import OwnMiss, correction_id, own_misses, worth_pico
from billing.when import to_us
from tests.billing.samples import NOON, book, opened, price, settled

DAY = (to_us(NOON - timedelta(hours=12)), to_us(NOON + timedelta(hours=12)))


async def missed(
    path: Path,
    usage: Usage | None,
    reason: str | None,
    at: Price = price("3", "0.3", "4", write="3.75"),  # noqa: B008 - frozen
    state: SettlementState = SettlementState.COMPLETE,
) -> list[OwnMiss]:
    """Own misses of a ledger with one request."""
    async with open_ledger(path, book(at)) as ledger:
        ledger.open(opened())
        await ledger.settle(replace(settled(usage=usage, state=state), miss_reason=reason))
    with reading(path) as connection:
        return list(own_misses(connection, *DAY))


@pytest.mark.parametrize(
    ("usage", "reason", "pico"),
    [
        (Usage(1000, 0, 10), "routed_elsewhere:960", 960 * 2_700_000),
        (Usage(1000, 320, 10), "routed_elsewhere:640", 640 * 2_700_000),
        (Usage(1000, 0, 10, cache_write_tokens=992), "routed_elsewhere:960", 960 * 3_450_000),
        (Usage(1000, 0, 10, cache_write_tokens=900), "routed_elsewhere:960", 900 * 3_450_000 + 60 * 2_700_000),
        (Usage(1000, 0, 10), "routed_elsewhere:5000", 1000 * 2_700_000),
    ],
)
async def test_a_credit_is_what_a_hit_would_have_saved(ledger_path: Path, usage: Usage, reason: str, pico: int) -> None:
    [miss] = await missed(ledger_path, usage, reason)
    assert (miss.pico, miss.credited) == (pico, False)
    credit = miss.credit(NOON)
    assert credit is not None
    assert (credit.charged_pico, credit.full_pico, credit.currency) == (-pico, 0, "USD")
    assert (credit.tenant_id, credit.request_id, credit.model) == ("acme", "r1", "llama")


@pytest.mark.parametrize("reason", [None, "cold", "evicted", "prompt_changed:320", "routed_elsewhere"])
async def test_other_misses_are_not_ours(ledger_path: Path, reason: str | None) -> None:
    assert await missed(ledger_path, Usage(1000, 0, 10), reason) == []


@pytest.mark.parametrize(
    ("usage", "at", "state"),
    [
        (Usage(1000, 0, 10), price("3", None, "4"), SettlementState.COMPLETE),
        (Usage(1000, 0, 10), price(model="another"), SettlementState.COMPLETE),
        (None, price(), SettlementState.COMPLETE),
        (Usage(1000, 0, 10), price(), SettlementState.FAILED),
        (Usage(1000, 0, 10), price(), SettlementState.INTERRUPTED),
    ],
    ids=["no cached rate", "no price", "no usage", "failed", "interrupted"],
)
async def test_what_cost_nothing_or_cannot_be_known_is_worth_nothing(
    ledger_path: Path, usage: Usage | None, at: Price, state: SettlementState
) -> None:
    [miss] = await missed(ledger_path, usage, "routed_elsewhere:960", at, state)
    assert miss.pico == 0
    assert miss.credit(NOON) is None


async def test_a_second_credit_for_a_request_is_refused_and_the_first_is_seen(ledger_path: Path) -> None:
    [miss] = await missed(ledger_path, Usage(1000, 0, 10), "routed_elsewhere:960")
    credit = miss.credit(NOON)
    assert isinstance(credit, Correction)
    assert credit.correction_id == correction_id("r1")
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.correct(credit)
        with pytest.raises(RowRefused):
            await ledger.correct(credit)
    with reading(ledger_path) as connection:
        assert [one.credited for one in own_misses(connection, *DAY)] == [True]
        assert list(own_misses(connection, DAY[1], DAY[1] + 1)) == []


@given(
    tokens=st.integers(0, 20_000),
    prompt=st.integers(0, 10_000),
    cached_share=st.floats(0, 1),
    written_share=st.floats(0, 1),
    rates=st.tuples(*[st.integers(0, 10**7)] * 3),
    output_pico=st.integers(0, 10**10),
)
def test_no_credit_is_negative_or_more_than_the_request_cost(
    tokens: int,
    prompt: int,
    cached_share: float,
    written_share: float,
    rates: tuple[int, int, int],
    output_pico: int,
) -> None:
    cached = int(prompt * cached_share)
    written = int((prompt - cached) * written_share)
    fresh = prompt - cached - written
    charged = fresh * rates[0] + cached * rates[1] + written * rates[2] + output_pico
    row = {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "input_pico": rates[0],
        "cached_input_pico": rates[1],
        "cache_write_pico": rates[2],
        "charged_units": charged // 10**12,
        "charged_pico": charged % 10**12,
    }
    assert 0 <= worth_pico(row, tokens) <= charged
