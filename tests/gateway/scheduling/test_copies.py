"""Hot prefixes are copied once waiting for them has cost as much as a copy."""

import math
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from backends import PerfModel
from gateway.scheduling import Candidate, Decision, Demand, Question, chooser_of, observing
from gateway.scheduling.copies import RecentShares
from gateway.types import Reason
from prefix_index import HASH_BYTES, Chain

SPEED = PerfModel(base_s=0.0, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.02)
BLOCK = 16
HELD = 800
NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])


def chain(number: int, shared_blocks: int = HELD // BLOCK) -> Chain:
    """`shared_blocks` that all have, and one block of its own."""
    names = [*range(shared_blocks), 1_000_000 + number]
    hashes = b"".join(name.to_bytes(HASH_BYTES, "little") for name in names)
    return Chain(hashes, BLOCK, len(names) * BLOCK)


def candidate(name: str, cached: int, queued: int = 0) -> Candidate:
    return Candidate(name, cached, cached, queued, SPEED)


def asked(number: int, candidates: Sequence[Candidate], **more: object) -> Question:
    prompt = chain(number)
    return Question(
        candidates,
        {},
        demand=Demand(prompt.prompt_tokens, 10),
        chance=lambda: 0.0,
        refine=lambda one: one,
        chain=prompt,
        **more,  # type: ignore[arg-type]  # only no_affinity
    )


def decide(choose: Callable[[Question], Decision], fleet: Sequence[Candidate], times: int) -> list[Decision]:
    return [choose(asked(number, fleet)) for number in range(times)]


BUSY = (candidate("holder", HELD, queued=300), candidate("b", 0), candidate("c", 0), candidate("d", 0))
IDLE = (candidate("holder", HELD), *BUSY[1:])


def test_one_request_of_a_hot_prefix_makes_a_copy_once_the_others_have_waited_its_price_together() -> None:
    decisions = decide(chooser_of("prefix", 0.0), BUSY, 10)
    copied = [number for number, decision in enumerate(decisions) if decision.reason is Reason.PREFIX_COPIED]
    assert copied == [6, 9]  # the fifth is the first that counts; three times 0.3 s pay 0.8 s
    copy = decisions[6]
    assert copy.endpoint_id == "b"
    assert math.isclose(copy.copy_cost_s, 0.8)
    assert all(decision.copy_cost_s == 0 for decision in decisions if decision.reason is not Reason.PREFIX_COPIED)


def test_where_nobody_waits_no_copy_is_made() -> None:
    assert {one.reason for one in decide(chooser_of("prefix", 0.0), IDLE, 100)} == {Reason.PREFIX_HIT}


def test_a_prefix_of_few_requests_is_not_copied_however_long_they_wait() -> None:
    choose = chooser_of("prefix", 0.0)
    others = [asked(1000 + number, [candidate("holder", 0, queued=300), *BUSY[1:]]) for number in range(300)]
    reasons = set()
    for number in range(60):
        reasons.add(choose(asked(number, BUSY)).reason)
        for other in others[number * 5 : number * 5 + 5]:  # five of six are of something else; 1/6 of 4 is less than 1
            choose(other)
    assert reasons == {Reason.PREFIX_HIT}


def test_no_more_endpoints_get_it_than_its_share_of_the_requests_asks_for() -> None:
    choose = chooser_of("prefix", 0.0)
    two_hold = (candidate("holder", HELD, queued=300), candidate("b", HELD, queued=300), *BUSY[2:])
    cold = [candidate(one.endpoint_id, 0, one.queued_tokens) for one in two_hold]
    for number in range(8):
        choose(asked(3000 + number, cold))
    reasons = set()
    for number in range(200):
        reasons.add(choose(asked(number, two_hold)).reason)
        for other in (1000, 2000):
            choose(asked(other + number, cold))
    assert Reason.PREFIX_COPIED not in reasons  # a third of the requests, half of the endpoints


def test_what_later_requests_save_at_the_copy_is_told() -> None:
    choose = chooser_of("prefix", 0.0)
    assert decide(choose, BUSY, 7)[-1].reason is Reason.PREFIX_COPIED
    decision = choose(asked(7, (BUSY[0], candidate("b", HELD, queued=100), *BUSY[2:])))
    assert decision.endpoint_id == "b"
    assert math.isclose(decision.copy_saved_s, 0.2)
    assert choose(asked(8, (IDLE[0], candidate("b", HELD, queued=100), *BUSY[2:]))).copy_saved_s == 0


def test_a_copy_that_comes_about_by_itself_pays_the_rent() -> None:
    choose = chooser_of("prefix", 0.0)
    assert decide(choose, BUSY, 6)[-1].reason is Reason.PREFIX_HIT
    by_itself = choose(asked(6, (candidate("holder", HELD, queued=2000), *BUSY[1:])))
    assert (by_itself.endpoint_id, by_itself.reason) == ("b", Reason.PREFIX_ELSEWHERE)
    assert [one.reason for one in decide(choose, BUSY, 2)] == [Reason.PREFIX_HIT] * 2


def test_nothing_is_copied_where_prefixes_are_not_known_or_all_have_it() -> None:
    choose = chooser_of("prefix", 0.0)
    blind = [choose(asked(number, BUSY, no_affinity=Reason.NOT_TOKENIZED)).reason for number in range(20)]
    assert set(blind) == {Reason.NOT_TOKENIZED}
    everywhere = [candidate(one.endpoint_id, HELD, 300) for one in BUSY]
    assert {one.reason for one in decide(choose, everywhere, 20)} == {Reason.PREFIX_HIT}


def test_a_policy_that_is_only_watched_makes_no_copies() -> None:
    choose = observing(chooser_of("round_robin", 0.0), chooser_of("prefix", 0.0))
    decisions = decide(choose, BUSY, 20)
    assert {one.reason for one in decisions} == {Reason.POLICY}
    assert all(one.copy_cost_s == one.copy_saved_s == 0 for one in decisions)


@given(st.lists(st.one_of(st.none(), NAMES), max_size=60), st.sampled_from([4.0, 128.0]))
def test_shares_are_sums_that_fade_by_requests(names: list[bytes | None], window: float) -> None:
    shares, seen = RecentShares(window), []
    for name in names:
        seen.append(name)
        if name is None:
            shares.pass_by()
            continue
        prefix = shares.note(name)
        weights = [math.exp((at - len(seen) + 1) / window) for at in range(len(seen))]
        naive = sum(weight for weight, one in zip(weights, seen, strict=True) if one == name)
        assert math.isclose(prefix.requests, naive)
        assert math.isclose(shares.share_of(prefix), naive / sum(weights))


@given(st.lists(st.binary(min_size=1, max_size=2), max_size=200), st.integers(1, 8))
def test_what_is_remembered_is_bounded_and_never_more_than_there_was(names: list[bytes], most: int) -> None:
    shares = RecentShares(32.0, most)
    for at, name in enumerate(names):
        prefix = shares.note(name)
        assert len(shares) <= most
        assert prefix.requests <= names[: at + 1].count(name) + 1e-9
        distinct_since = len(set(names[at - names[:at][::-1].index(name) : at])) if name in names[:at] else most
        if distinct_since < most:  # it was not pushed out, so its last request is counted
            assert prefix.requests > 1
