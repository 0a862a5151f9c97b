"""What a receipt means: pure judgements of what was sent and what the engine says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.receipts import Forget, Observe, Receipt, Sent, Verdict, at_first_token, judge
from gateway.reliability import Outcome
from prefix_index import Chain
from tests.gateway.sent_prompts import BLOCK, CONFIRMED, SPECULATIVE, TEN, chain, sent


def verdict(to: Sent, reported: int | None, *, habit_tokens: int = 0) -> Verdict:
    return judge(Receipt(to, began=True, reported_tokens=reported), habit_tokens=habit_tokens)


def test_at_the_first_token_the_prompt_is_confirmed_and_its_speculation_withdrawn() -> None:
    assert at_first_token(sent(confirmed=4, speculative=6)) == (Observe(CONFIRMED), Forget(6, SPECULATIVE))
    assert at_first_token(sent(confirmed=4, speculative=10)) == (Observe(CONFIRMED),)
    assert at_first_token(sent(followed=True)) == ()


def test_an_attempt_without_a_first_token_withdraws_what_it_made_speculative_and_nothing_else() -> None:
    for followed in (False, True):
        failed = judge(Receipt(sent(confirmed=4, speculative=6, followed=followed), began=False, reported_tokens=0))
        assert failed == Verdict((Forget(6, SPECULATIVE),), Outcome.NOT_COMPUTED)
    assert judge(Receipt(sent(speculative=10), began=False)).operations == ()


def test_less_than_was_known_cuts_what_is_confirmed_where_the_engine_says_and_then_confirms_the_prompt() -> None:
    found = verdict(sent(confirmed=8), 3 * BLOCK)
    assert found.operations == (Forget(3, CONFIRMED), Observe(CONFIRMED))
    assert (found.contradicts, found.compared_tokens, found.short_tokens, found.outcome) == (
        True,
        128,
        80,
        Outcome.LESS,
    )
    assert verdict(sent(confirmed=8), 0).operations[0] == Forget(0, CONFIRMED)


def test_as_much_as_was_known_or_more_confirms_the_prompt() -> None:
    assert verdict(sent(confirmed=8), 128) == Verdict((Observe(CONFIRMED),), Outcome.AGREED, 128)
    assert verdict(sent(confirmed=8), 160) == Verdict((Observe(CONFIRMED),), Outcome.MORE, 128, 0, 32)
    assert verdict(sent(), 0) == Verdict((Observe(CONFIRMED),), Outcome.AGREED, 0)


@pytest.mark.parametrize(
    ("prompt", "confirmed", "engine_block", "reported", "outcome"),
    [
        pytest.param(chain(*range(4)), 4, 16, 48, Outcome.AGREED, id="a whole prompt is reused but for its last block"),
        pytest.param(chain(*range(4)), 4, 1, 63, Outcome.AGREED, id="or but for its last token"),
        pytest.param(chain(*range(4)), 4, 1, 62, Outcome.LESS, id="not for two"),
        pytest.param(TEN, 8, 1, 128 + 15, Outcome.AGREED, id="single tokens: parts of a block more"),
        pytest.param(TEN, 8, 1, 128 + 16, Outcome.MORE, id="single tokens: a block more"),
        pytest.param(TEN, 9, 64, 128, Outcome.AGREED, id="blocks of the engine that are larger than ours"),
        pytest.param(TEN, 9, 64, 64, Outcome.LESS, id="one of them less"),
        pytest.param(TEN, 8, None, 128, Outcome.AGREED, id="an engine whose blocks are not known"),
    ],
)
def test_counts_are_compared_as_the_engine_rounds_them(
    prompt: Chain, confirmed: int, engine_block: int | None, reported: int, outcome: Outcome
) -> None:
    assert verdict(sent(prompt, confirmed, engine_block_tokens=engine_block), reported).outcome is outcome


def test_where_nothing_is_reported_or_the_tokens_are_not_the_engines_the_prompt_is_confirmed_and_no_more() -> None:
    assert verdict(sent(confirmed=8), None) == Verdict((Observe(CONFIRMED),), Outcome.UNREPORTED)
    assert verdict(sent(confirmed=8, exact=False), 0) == Verdict((Observe(CONFIRMED),), Outcome.INEXACT)


def test_where_events_tell_what_is_there_a_receipt_writes_nothing_that_is_confirmed() -> None:
    found = verdict(sent(confirmed=8, speculative=2, followed=True), 0)
    assert found.operations == (Forget(2, SPECULATIVE),)
    assert (found.outcome, found.short_tokens) == (Outcome.LESS, 128)
    assert verdict(sent(confirmed=8, speculative=10, followed=True), None).operations == ()


def test_where_events_tell_what_is_there_this_replicas_own_copy_still_goes_by_receipts() -> None:
    assert verdict(sent(confirmed=8, followed=True), 16).here == (Forget(1, CONFIRMED), Observe(CONFIRMED))
    for reported in (None, 128, 144):
        assert verdict(sent(confirmed=8, followed=True), reported).here == (Observe(CONFIRMED),)
    assert verdict(sent(confirmed=8), 16).here == ()
    assert judge(Receipt(sent(followed=True), began=False)).here == ()


def test_a_block_less_is_the_habit_of_some_engines_and_nothing_at_all_is_none() -> None:
    assert verdict(sent(confirmed=8), 112, habit_tokens=16) == Verdict((Observe(CONFIRMED),), Outcome.AGREED, 128)
    assert verdict(sent(confirmed=8), 96, habit_tokens=16).contradicts
    assert verdict(sent(confirmed=1), 0, habit_tokens=16).contradicts


@given(
    st.integers(0, 10),
    st.integers(0, 10),
    st.none() | st.integers(0, 200),
    st.sampled_from([None, 1, 16, 32]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_whatever_is_reported_an_answer_leaves_its_prompt_confirmed_and_others_no_longer_than_reported(
    confirmed: int, speculative: int, reported: int | None, engine_block: int | None, flags: tuple[bool, bool, bool]
) -> None:
    began, followed, exact = flags
    to = sent(TEN, confirmed, speculative, engine_block_tokens=engine_block, followed=followed, exact=exact)
    found = judge(Receipt(to, began, None, reported))
    written = [operation.claim for operation in found.operations]
    assert (Observe(CONFIRMED) in found.operations) == (began and not followed)
    assert CONFIRMED not in written or (began and not followed)
    assert Observe(SPECULATIVE) not in found.operations
    for operation in found.operations:
        if isinstance(operation, Forget):
            assert 0 <= operation.from_block < len(TEN)
            if operation.claim is CONFIRMED:
                assert reported is not None
                assert operation.from_block == reported // BLOCK < confirmed
    assert found.contradicts == (found.outcome is Outcome.LESS)
    assert not (found.short_tokens and found.more_tokens)
