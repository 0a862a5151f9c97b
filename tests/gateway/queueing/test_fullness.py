"""When an endpoint is full, and what is learned of its bound."""

from hypothesis import example, given
from hypothesis import strategies as st

from backends import LoadSample
from gateway.queueing.fullness import Bound, Work, is_full, learned

NOTHING = Work(0, 0, 0, 0)


def sample(running: int | None, waiting: int | None) -> LoadSample:
    return LoadSample(0.0, running=running, waiting=waiting)


def test_nothing_known_is_not_full() -> None:
    assert not is_full(Bound(), None, Work(500, 500, 10**6, 10**6), 1.0)
    assert not is_full(Bound(learns=True, kv_use=0.9), None, Work(500, 500, 0, 0), None)


def test_requests_tokens_or_the_cache_make_it_full() -> None:
    assert is_full(Bound(requests=4), 4, Work(4, 4, 0, 0), None)
    assert not is_full(Bound(requests=4), 4, Work(3, 3, 0, 0), None)
    assert is_full(Bound(queued_tokens=1000), None, Work(1, 1, 1000, 1000), None)
    assert is_full(Bound(kv_use=0.9), None, Work(1, 1, 0, 0), 0.95)


def test_an_idle_engine_whose_cache_is_full_of_old_prefixes_takes_something() -> None:
    assert not is_full(Bound(kv_use=0.9), None, NOTHING, 1.0)


def test_a_replica_has_its_part_of_a_bound_though_another_has_filled_it() -> None:
    assert not is_full(Bound(requests=10), 10, Work(4, 14, 0, 0), None, replicas=2)
    assert is_full(Bound(requests=10), 10, Work(5, 15, 0, 0), None, replicas=2)
    assert is_full(Bound(requests=1), 1, Work(1, 2, 0, 0), None, replicas=3)


@given(
    bound=st.integers(1, 40), replicas=st.integers(1, 5), takes=st.lists(st.integers(0, 4), min_size=1, max_size=300)
)
@example(bound=2, replicas=4, takes=[2, 2, 0, 1, 3])
def test_replicas_that_see_each_other_send_no_more_than_the_bound_and_their_parts(
    bound: int, replicas: int, takes: list[int]
) -> None:
    own = [0] * replicas
    for taker in takes:
        at = taker % replicas
        if not is_full(Bound(requests=bound), bound, Work(own[at], sum(own), 0, 0), None, replicas):
            own[at] += 1
    part = max(bound // replicas, 1)
    assert sum(own) <= bound + (replicas - 1) * part


def test_a_bound_is_learned_where_requests_wait_in_the_engine() -> None:
    assert learned(None, sample(16, 3)) == 16
    assert learned(None, sample(16, 0)) is None
    assert learned(40, sample(16, 1)) == 16
    assert learned(None, sample(0, 5)) == 1


def test_a_learned_bound_rises_slowly_so_that_what_waits_is_not_sent_all_at_once() -> None:
    assert learned(16, sample(16, 0)) == 18
    assert learned(1, sample(1, 0)) == 2


def test_a_bound_is_forgotten_where_the_engine_says_nothing_or_nobody_has_waited_for_long() -> None:
    assert learned(16, None) is None
    assert learned(16, sample(None, 0)) is None
    bound: int | None = 16
    for _ in range(200):
        bound = learned(bound, sample(16, 0))
    assert bound is None
