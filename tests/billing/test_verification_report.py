"""A period looked through in a ledger of either database: verdicts, misses, spans between samples of the engines."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from billing import (
    EngineSample,
    OpenedRequest,
    PeriodInvalid,
    PriceBook,
    Settlement,
    SettlementState,
    Usage,
    UsageFlag,
    Verdict,
    open_ledger,
)
from billing.archive import archive_month
from billing.verification.report import Verification, verify
from billing.verification.text import (
    render_verification,
    render_verification_json,
    verification_lines,
)
from tests.billing.conftest import Where
from tests.billing.samples import NOON, attempt, book, opened, price, settled

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
COUNTED = Usage(1_000, 900, 100)


def sample(minute: float, hits: int | None, queries: int | None, endpoint: str = "gpu-a") -> EngineSample:
    return EngineSample(endpoint, NOON + minute * MINUTE, 7, hits, queries)


def answered(
    name: str,
    minute: float,
    usage: Usage | None = COUNTED,
    *,
    seconds: float = 2.0,
    verdict: Verdict | None = Verdict.VERIFIED,
    miss: str | None = None,
    lost_tokens: int | None = None,
    **fields: Any,
) -> list[OpenedRequest | Settlement]:
    """A request that came in so many minutes after noon."""
    at = NOON + minute * MINUTE
    settlement = settled(name, usage, at=at + timedelta(seconds=seconds), **fields)
    done = replace(settlement, verdict=verdict, miss_reason=miss, lost_tokens=lost_tokens)
    return [opened(name, at=at), done]


DOLLARS = book(price("3", "0.3", "4"))


async def found_in(
    where: Where, *records: OpenedRequest | Settlement | EngineSample, prices: PriceBook = DOLLARS
) -> Verification:
    async with open_ledger(where, prices) as ledger:
        for one in records:
            match one:
                case OpenedRequest():
                    await ledger.open(one)
                case Settlement():
                    await ledger.settle(one)
                case EngineSample():
                    await ledger.sample(one)
    return verify(where, NOON, NOON + DAY)


def statuses(found: Verification, endpoint: int = 0) -> list[str]:
    return [span.status.value for span in found.endpoints[endpoint].spans]


def text(found: Verification) -> str:
    console = Console(width=200, record=True, file=StringIO())
    for table in render_verification(found):
        console.print(table)
    for line in verification_lines(found):
        console.print(line)
    return console.export_text()


async def test_what_was_reported_and_counted_alike_is_sound(where: Where) -> None:
    found = await found_in(
        where,
        sample(0, 100, 500),
        sample(10, 1_900, 2_500),
        *answered("a", 1),
        *answered("b", 2, verdict=Verdict.ENGINE_LOWER, miss="evicted"),
        *answered("c", 30, Usage(50, None, 5), verdict=Verdict.UNREPORTED),
        *answered("d", 40, None, state=SettlementState.FAILED, verdict=None),
    )
    [check] = found.endpoints
    assert found.is_sound
    assert statuses(found) == ["matched"]
    assert (check.answers, check.coverage, check.disputed) == (3, 1.0, 0)
    assert check.verdicts == {"verified": 1, "engine_lower": 1, "unreported": 1}
    assert {reason: (one.requests, one.uncached_tokens) for reason, one in check.misses.items()} == {
        "evicted": (1, 100)
    }
    shown = text(found)
    assert "100.0%" in shown
    assert "evicted" in shown
    assert shown.rstrip().endswith("sound: nothing speaks against the engines' reports")


async def test_an_engine_whose_answers_claim_more_than_its_cache_gave_is_shown_with_the_span(where: Where) -> None:
    claims = Usage(1_000, 999, 10)
    found = await found_in(
        where,
        sample(0, 0, 0),
        sample(10, 0, 4_000),
        *(
            record
            for n in range(4)
            for record in answered(f"r{n}", n + 1, claims, verdict=Verdict.ENGINE_HIGHER, expected_cached_tokens=0)
        ),
    )
    [check] = found.endpoints
    assert (check.disputed, check.is_suspect, found.is_sound) == (4, True, False)
    assert statuses(found) == ["over_reported"]
    shown = text(found)
    assert "gpu-a: 4 of 4 answers claim all but one prompt token as cached" in shown
    assert "over_reported" in shown
    assert "3,996" in shown
    assert shown.rstrip().endswith("not sound: see above")


async def test_one_doubtful_answer_in_many_is_no_pattern(where: Where) -> None:
    odd = [one for n in range(3) for one in answered(f"o{n}", n, Usage(1_000, 999, 1), expected_cached_tokens=0)]
    even = [one for n in range(40) for one in answered(f"e{n}", n)]
    found = await found_in(where, *odd, *even)
    assert (found.endpoints[0].disputed, found.endpoints[0].is_suspect) == (3, False)


async def test_an_engine_that_gave_more_than_its_answers_claim_is_not_sound(where: Where) -> None:
    found = await found_in(where, sample(0, 0, 0), sample(10, 900, 1_000), *answered("a", 1, Usage(1_000, 0, 9)))
    assert statuses(found) == ["under_reported"]
    assert not found.is_sound
    assert "under_reported" in text(found)


@pytest.mark.parametrize("counted", [0, 3_000])
async def test_what_was_cut_failed_or_is_open_may_have_been_counted_or_not(where: Where, counted: int) -> None:
    cut = answered("cut", 1, flags={UsageFlag.ESTIMATED}, state=SettlementState.PARTIAL, verdict=None)
    failed = answered(
        "failed",
        2,
        None,
        state=SettlementState.FAILED,
        verdict=None,
        attempts=(attempt("failed", outcome="status_500"),),
    )
    [lost, _] = answered("lost", 3)
    told = [sample(0, 0, 0), *cut, *failed, lost]
    found = await found_in(where, *told, sample(10, counted, counted))
    assert statuses(found) == ["matched"]


async def test_a_retried_request_may_have_been_counted_where_it_failed(where: Where) -> None:
    failed = attempt("r", 0, "status_500", 500)
    elsewhere = replace(failed, ordinal=1, endpoint_id="gpu-c")  # of which there are no samples
    attempts = (replace(failed, endpoint_id="gpu-b"), elsewhere, attempt("r", 2))
    counted = [sample(0, 0, 0, "gpu-b"), sample(5, 400, 1_000, "gpu-b")]
    found = await found_in(where, *counted, *answered("r", 0.0, attempts=attempts))
    assert [check.endpoint_id for check in found.endpoints] == ["gpu-a", "gpu-b"]
    assert statuses(found, 1) == ["matched"]


async def test_a_request_that_came_in_before_the_period_and_ended_in_it_is_in_a_span_and_in_no_verdict(
    where: Where,
) -> None:
    found = await found_in(where, sample(0, 0, 0), sample(10, 900, 1_000), *answered("r", -5, seconds=600))
    [check] = found.endpoints
    assert (check.answers, check.verdicts) == (0, {})
    assert (statuses(found), check.spans[0].requests) == (["matched"], 1)


async def test_an_endpoint_without_samples_has_verdicts_and_no_coverage(where: Where) -> None:
    found = await found_in(where, *answered("a", 1))
    [check] = found.endpoints
    assert (check.spans, check.coverage) == ([], None)
    assert "Coverage" not in text(found)


async def test_an_engine_without_counters_is_shown_without_a_share(where: Where) -> None:
    found = await found_in(where, sample(0, None, 1), sample(10, None, 2), *answered("a", 1))
    assert statuses(found) == ["not_counted"]
    assert found.endpoints[0].coverage is None
    assert "not_counted" in text(found)


async def test_own_misses_are_added_up_and_told_with_what_they_are_worth(where: Where) -> None:
    lost = Usage(1_000, 0, 10)
    found = await found_in(
        where,
        *answered("a", 1, lost, miss="routed_elsewhere:960"),
        *answered("b", 2, lost, miss="routed_elsewhere:40"),
        *answered("c", 3, lost, miss="routed_elsewhere"),
    )
    own = found.own_misses
    assert (own.requests, own.tokens, own.credited) == (2, 1_000, 0)
    assert own.worth_pico == {"USD": 1_000 * 2_700_000}
    assert "missed 1,000 cached tokens in 2 requests, worth 0.0027" in text(found)
    assert {reason: one.requests for reason, one in found.endpoints[0].misses.items()} == {"routed_elsewhere": 3}


async def test_without_prices_own_misses_are_told_and_worth_nothing(where: Where) -> None:
    lost = answered("a", 1, Usage(1_000, 0, 10), miss="routed_elsewhere:960")
    found = await found_in(where, *lost, prices=PriceBook.empty())
    assert (found.own_misses.tokens, found.own_misses.worth_pico) == (960, {})
    assert "worth nothing" in text(found)


async def test_the_json_says_all_of_it(where: Where) -> None:
    opening, done = answered("a", 1, miss="prompt_changed:320", lost_tokens=64)
    found = await found_in(where, sample(0, 0, 0), sample(10, 900, 1_000), opening, done)
    said = json.loads(render_verification_json(found))
    [endpoint] = said["endpoints"]
    assert (said["sound"], endpoint["coverage"]) == (True, 1.0)
    assert endpoint["misses"] == {"prompt_changed": {"requests": 1, "uncached_tokens": 100, "lost_tokens": 64}}
    assert endpoint["spans"][0]["status"] == "matched"
    assert endpoint["spans"][0]["engine_hit_tokens"] == endpoint["spans"][0]["reported_cached_tokens"] == 900


async def test_a_period_without_anything_is_sound_and_empty(where: Where) -> None:
    found = await found_in(where)
    assert (list(found.endpoints), found.is_sound, list(render_verification(found))) == ([], True, [])


async def test_a_month_whose_rows_are_archived_is_verified_from_its_file_alone(where: Where, tmp_path: Path) -> None:
    await found_in(where, *answered("1", 1))
    file = archive_month(where, "2026-11", tmp_path, lambda: NOON + 30 * DAY).file
    with pytest.raises(PeriodInvalid, match="its rows were archived"):
        verify(where, NOON, NOON + DAY)
    assert verify(file, NOON, NOON + DAY).endpoints[0].endpoint_id == "gpu-a"


async def test_of_a_request_at_two_endpoints_the_prompt_is_held_against_who_computed_it(where: Where) -> None:
    opened_, done = answered("a", 1, Usage(1_000, 900, 100))
    assert isinstance(done, Settlement)
    legs = tuple(
        replace(
            attempt("a", number, outcome), endpoint_id=endpoint, started_at=NOON + MINUTE, ended_at=NOON + 2 * MINUTE
        )
        for number, (endpoint, outcome) in enumerate([("gpu-p", "prefilled"), ("gpu-a", "answered")])
    )
    split = replace(
        done,
        prefill_endpoint_id="gpu-p",
        prefill_cached_tokens=900,
        decode_cached_tokens=999,
        flags=frozenset({UsageFlag.DISPUTED}),
        attempts=legs,
    )
    found = await found_in(
        where,
        sample(0, 0, 0, "gpu-p"),
        sample(10, 900, 1_000, "gpu-p"),
        sample(0, 0, 0),
        sample(10, 0, 1_000),
        opened_,
        split,
    )
    decode, prefill = found.endpoints
    assert (decode.endpoint_id, decode.answers, decode.disputed, dict(decode.verdicts)) == ("gpu-a", 1, 1, {})
    assert (prefill.endpoint_id, prefill.answers, prefill.disputed, prefill.verdicts) == (
        "gpu-p",
        0,
        0,
        {"verified": 1},
    )
    assert [span.status.value for check in (decode, prefill) for span in check.spans] == ["matched", "matched"]
