"""How far off an expectation was, and why."""

from pathlib import Path

import pytest

from bench.accuracy import _heads, _with_ledger
from bench.accuracy_causes import Cause, accuracy_of, misses_of
from bench.mortal_fleet.types import Counts, Outcome, Seen
from billing import PriceBook, open_ledger
from gateway.demo import DemoFailed
from gateway.demo.workload import load_conversations

HEADS = {"a": "tools", "b": "tools", "c": "c"}


def seen(
    name: str,
    *,
    expected: int | None,
    cached: int | None,
    prompt: int | None = 100,
    span: tuple[float, float] = (0.0, 1.0),
    endpoint: str = "engine-0",
) -> Seen:
    return Seen(
        name=name,
        conversation=name[0],
        turn=0,
        tenant="acme",
        started_s=span[0],
        ended_s=span[1],
        outcome=Outcome.SERVED,
        usage=Counts(prompt, cached, 8),
        expected_tokens=expected,
        endpoint=endpoint,
        request_id=name,
    )


def test_errors_are_summed_apart_and_in_percent_of_all_prompt_tokens() -> None:
    answers = [seen("a0", expected=48, cached=32), seen("b0", expected=16, cached=32), seen("c0", expected=0, cached=0)]
    found = accuracy_of(answers)
    assert (found.requests, found.prompt_tokens, found.expected_tokens, found.reported_tokens) == (3, 300, 64, 64)
    assert (found.too_many_tokens, found.too_few_tokens) == (16, 16)
    assert found.error_percent == pytest.approx(100 * 32 / 300)
    assert found.cached_share == pytest.approx(64 / 300)


def test_what_is_not_known_is_left_out_and_is_no_error() -> None:
    answers = [
        seen("a0", expected=None, cached=32),
        seen("b0", expected=16, cached=None),
        seen("c0", expected=0, cached=0, prompt=None),
    ]
    assert accuracy_of(answers).requests == 0
    assert accuracy_of(answers).error_percent == 0
    assert misses_of(answers[:2], HEADS, {}) == []


def test_what_was_expected_and_is_not_there_was_evicted() -> None:
    [miss] = misses_of([seen("c0", expected=64, cached=16)], HEADS, {"c0": 64.0})
    assert (miss.cause, miss.expected_tokens, miss.reported_tokens) == (Cause.EVICTED, 64, 16)
    assert (miss.alongside, miss.supposed_tokens) == (0, 64.0)


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (seen("b0", expected=0, cached=0, span=(0.5, 2.0)), Cause.ALONGSIDE),
        (seen("a1", expected=0, cached=0, span=(0.5, 2.0)), Cause.ALONGSIDE),
        (seen("c0", expected=0, cached=0, span=(0.5, 2.0)), Cause.UNKNOWN),
        (seen("b0", expected=0, cached=0, span=(1.0, 2.0)), Cause.UNKNOWN),
        (seen("b0", expected=0, cached=0, span=(0.5, 2.0), endpoint="engine-1"), Cause.UNKNOWN),
    ],
)
def test_more_than_expected_comes_from_another_with_the_same_beginning_at_the_same_time_and_place(
    other: Seen, cause: Cause
) -> None:
    [miss] = misses_of([seen("a0", expected=0, cached=32), other], HEADS, {})
    assert miss.cause is cause


def test_what_was_known_and_thought_to_be_gone_was_doubted() -> None:
    [miss] = misses_of([seen("a0", expected=0, cached=32)], HEADS, {"a0": 12.8})
    assert miss.cause is Cause.DOUBTED


def test_the_largest_misses_come_first_with_times_from_the_beginning_of_the_run() -> None:
    answers = [seen("a0", expected=16, cached=0), seen("c0", expected=0, cached=64, span=(12.0, 12.5))]
    misses = misses_of(answers, HEADS, {})
    assert [miss.seen.name for miss in misses] == ["c0", "a0"]
    row = misses[0].row(10.0)
    assert (row["started_s"], row["took_s"], row["cause"], row["prompt_tokens"]) == (2.0, 0.5, "unknown", 100)


def test_conversations_of_a_kind_share_a_beginning_within_their_share_group_and_chats_do_not() -> None:
    heads = _heads()
    kinds = {(one.tenant, one.kind.value): heads[one.id] for one in load_conversations()}
    assert kinds["acme", "tools"] == kinds["birch", "tools"]
    assert kinds["acme", "document"] != kinds["cedar", "document"]
    chats = [heads[one.id] for one in load_conversations() if one.kind.value == "chat"]
    assert len(set(chats)) == len(chats)


async def test_a_request_that_the_ledger_does_not_have_is_no_measurement(tmp_path: Path) -> None:
    async with open_ledger(tmp_path / "ledger.db", PriceBook.empty()):
        with pytest.raises(DemoFailed, match="a0 was served"):
            _with_ledger([seen("a0", expected=0, cached=0)], tmp_path / "ledger.db")
