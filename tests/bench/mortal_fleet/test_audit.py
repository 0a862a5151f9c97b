"""What clients saw against what ledgers hold: every kind of disagreement is found, and named."""

from dataclasses import replace

import pytest

from bench.affinity import price_pico
from bench.mortal_fleet.audit import audit
from bench.mortal_fleet.types import Counts, Outcome, Row, Seen

USAGE = Counts(100, 64, 8)
PRICE = 100

SERVED = Seen(
    name="0.a.0",
    conversation="a",
    turn=0,
    tenant="acme",
    started_s=0.0,
    ended_s=1.0,
    outcome=Outcome.SERVED,
    usage=USAGE,
    expected_tokens=64,
    replica=1,
    endpoint="engine-0",
    request_id="id-1",
)
CUT = replace(SERVED, name="0.b.0", request_id="id-2", outcome=Outcome.CUT, usage=Counts())
ROW = Row(
    ledger=1,
    request_id="id-1",
    tenant="acme",
    state="complete",
    usage=USAGE,
    expected_tokens=64,
    endpoint="engine-0",
    charged_pico=PRICE,
)
CUT_ROW = replace(ROW, request_id="id-2", state="partial", charged_pico=40)
INTERRUPTED = Row(ledger=0, request_id="id-9", tenant="acme", state="interrupted")


def price(_usage: Counts) -> int:
    return PRICE


def test_what_agrees_is_exact() -> None:
    retried = replace(SERVED, retries=1)
    found = audit([retried, CUT], [ROW, CUT_ROW, INTERRUPTED], price)
    assert found.broken == ()
    assert (found.rows, found.served, found.agreeing) == (3, 1, 1)
    assert (found.cut, found.unseen) == ({"partial": 1}, {"interrupted": 1})
    assert found.charged_pico == PRICE + 40
    assert found.row()["broken"] == []


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replace(ROW, request_id="other", state="interrupted", charged_pico=None), "has no row"),
        (replace(ROW, ledger=2), "in the ledger of 2"),
        (replace(ROW, state="partial"), "its row is partial"),
        (replace(ROW, usage=Counts(100, 63, 8)), "its row says"),
        (replace(ROW, expected_tokens=None), "was told 64 expected"),
        (replace(ROW, charged_pico=PRICE + 1), "was billed 101"),
        (replace(ROW, state=None), "open for ever"),
    ],
)
def test_an_answer_that_is_not_written_down_as_it_was_seen_is_told(row: Row, why: str) -> None:
    found = audit([SERVED], [row], price)
    assert any(why in fault for fault in found.broken)
    assert found.agreeing == 0


def test_a_request_in_two_ledgers_is_told() -> None:
    found = audit([SERVED], [ROW, replace(ROW, ledger=2)], price)
    assert found.broken == ("id-1 is in 2 rows",)


@pytest.mark.parametrize("state", ["complete", "partial"])
def test_a_bill_for_what_nobody_saw_is_told(state: str) -> None:
    found = audit([replace(SERVED, retries=1)], [ROW, replace(INTERRUPTED, state=state)], price)
    assert found.broken == (f"id-9 is billed, {state}, and nobody saw it",)


def test_an_amount_on_a_row_that_is_not_billed_is_told() -> None:
    found = audit([replace(SERVED, retries=1)], [ROW, replace(INTERRUPTED, charged_pico=1)], price)
    assert found.broken == ("id-9 is billed, interrupted, and nobody saw it",)


def test_more_rows_than_were_tried_are_told() -> None:
    assert audit([SERVED], [ROW, INTERRUPTED], price).broken == (
        "1 rows belong to nobody, and only 0 tries ended without a word",
    )


def test_a_try_that_came_to_nothing_may_have_a_row_and_need_not() -> None:
    lost = replace(SERVED, outcome=Outcome.FAILED, request_id=None, replica=None, usage=Counts(), retries=2)
    assert audit([SERVED, lost], [ROW], price).broken == ()
    assert audit([SERVED, lost], [ROW, INTERRUPTED], price).broken == ()


@pytest.mark.parametrize(("state", "is_right"), [("interrupted", True), ("complete", True), ("failed", False)])
def test_what_a_cut_answer_may_be_in_the_ledger(state: str, is_right: bool) -> None:
    found = audit([CUT], [replace(CUT_ROW, state=state, charged_pico=None)], price)
    assert (found.broken == ()) is is_right
    assert found.cut == {state: 1}


def test_a_cut_answer_without_a_row_is_told() -> None:
    assert audit([CUT], [], price).broken == ("0.b.0 was cut, and its row is None",)


def test_the_price_is_the_demos() -> None:
    assert price_pico(Counts(1_000_000, 400_000, 10_000)) == 1_800_000_000_000 + 120_000_000_000 + 150_000_000_000
    assert price_pico(Counts()) == 0
