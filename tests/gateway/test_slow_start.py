"""Newcomers get new work little by little, keep what they hold, and never leave a request without a taker."""

from backends import PerfModel
from gateway.scheduling import Candidate, Filtered
from gateway.slow_start import SlowStart

SPEED = PerfModel(base_s=0.01, prefill_tokens_per_s=8000.0)


def candidate(name: str, known: int = 0) -> Candidate:
    return Candidate(name, known, known, 0, SPEED)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def chosen(start: SlowStart, *candidates: Candidate) -> list[str]:
    return [one.endpoint_id for one in start.thinned(list(candidates), {})]


def test_a_newcomer_may_be_chosen_in_a_share_that_rises() -> None:
    clock = Clock()
    start = SlowStart(40, clock)
    start.begin("new")
    shares = []
    for age_s in (0, 10, 20, 30, 40):
        clock.now_s = 100.0 + age_s
        shares.append(sum("new" in chosen(start, candidate("old"), candidate("new")) for _ in range(100)) / 100)
    assert shares == [0, 0.25, 0.5, 0.75, 1]


def test_who_is_left_out_is_said_to_be_starting() -> None:
    start, filtered = SlowStart(40, Clock()), dict[str, Filtered]()
    start.begin("new")
    able = start.thinned([candidate("old"), candidate("new")], filtered)
    assert [one.endpoint_id for one in able] == ["old"]
    assert filtered == {"new": Filtered.STARTING}


def test_a_conversation_that_began_at_a_newcomer_stays_there() -> None:
    start = SlowStart(40, Clock())
    start.begin("new")
    assert chosen(start, candidate("old", 16), candidate("new", 64)) == ["old", "new"]
    assert chosen(start, candidate("old", 64), candidate("new", 16)) == ["old"]


def test_where_nobody_else_is_a_newcomer_takes_all() -> None:
    start = SlowStart(40, Clock())
    start.begin("one")
    start.begin("two")
    assert chosen(start, candidate("one"), candidate("two")) == ["one", "two"]


def test_it_is_off_unless_configured_and_forgets_who_is_gone() -> None:
    off, on = SlowStart(0, Clock()), SlowStart(40, Clock())
    off.begin("new")
    assert chosen(off, candidate("old"), candidate("new")) == ["old", "new"]
    on.begin("new")
    on.removed("new")
    assert chosen(on, candidate("old"), candidate("new")) == ["old", "new"]
