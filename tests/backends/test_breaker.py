"""The breaker of an endpoint: its own faults open it, a few probes at a time shut it, and it remembers."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backends.breaker import Breaker, BreakerRules, BreakerState

RULES = BreakerRules(failures=3, open_s=5, open_max_s=40, probes=2)
SHUT, OPEN, HALF_OPEN = BreakerState.SHUT, BreakerState.OPEN, BreakerState.HALF_OPEN


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker(RULES, now_s)
    for _ in range(3):
        breaker.fault("reset", now_s, now_s)
    assert breaker.state is OPEN
    return breaker


def test_faults_in_a_row_open_it_and_it_says_why_and_since_when() -> None:
    breaker = Breaker(RULES, 0.0)
    assert [breaker.fault("reset", now_s, now_s) for now_s in (1.0, 2.0, 3.0)] == [False, False, True]
    assert (breaker.state, breaker.why, breaker.since_s) == (OPEN, "reset, 3 times in a row", 3.0)
    assert not breaker.has_place


def test_an_answer_between_two_faults_ends_the_count() -> None:
    breaker = Breaker(RULES, 0.0)
    for now_s in range(100):
        breaker.fault("reset", now_s, now_s)
        breaker.fault("reset", now_s, now_s)
        breaker.answered(now_s)
    assert breaker.state is SHUT


def test_a_beginning_of_an_answer_does_not_end_it() -> None:
    """Else an engine that breaks off every answer would never be found."""
    breaker = Breaker(RULES, 0.0)
    for _ in range(3):
        breaker.begins_to_answer(1.0)
        breaker.fault("broken_off", 1.0, 2.0)
    assert breaker.state is OPEN


def test_after_its_time_as_many_probes_as_configured_pass_at_once() -> None:
    breaker = opened()
    assert not breaker.look(4.9)
    assert breaker.look(5.0)
    assert [breaker.has_place and breaker.probe() for _ in range(5)] == [True, True, False, False, False]
    breaker.probed()
    assert breaker.has_place


def test_the_first_bytes_of_a_probe_shut_it() -> None:
    breaker = opened()
    breaker.look(5.0)
    assert breaker.begins_to_answer(6.0)
    assert (breaker.state, breaker.why, breaker.since_s) == (SHUT, None, 6.0)


def test_each_time_it_stays_open_for_twice_as_long_up_to_a_bound() -> None:
    breaker, now_s, lengths = opened(), 0.0, []
    for _ in range(5):
        began_s = now_s
        while not breaker.look(now_s):
            now_s += 1
        lengths.append(now_s - began_s)
        breaker.fault("silent", now_s, now_s)
    assert lengths == [5, 10, 20, 40, 40]
    assert breaker.opened == 6


def test_one_that_opens_soon_after_it_was_shut_is_open_for_longer_and_one_that_was_well_for_long_is_not() -> None:
    def open_for_s(well_for_s: float) -> float:
        breaker = opened()
        breaker.look(5.0)
        breaker.answered(5.0)
        now_s = 5.0 + well_for_s
        for _ in range(3):
            breaker.fault("reset", now_s, now_s)
        assert breaker.state is OPEN
        return next(waited for waited in range(100) if breaker.look(now_s + waited))

    assert open_for_s(1.0) == 10
    assert open_for_s(40.0) == 5


def test_what_was_sent_before_it_changed_says_nothing_when_it_fails() -> None:
    """A hundred requests that wait at a frozen engine fail one after the other, long after it was found to be."""
    breaker = opened(10.0)
    breaker.look(15.0)
    for _ in range(100):
        assert not breaker.fault("no_first_byte", 9.0, 16.0)
    assert breaker.state is HALF_OPEN
    breaker.answered(17.0)
    for _ in range(100):
        assert not breaker.fault("no_first_byte", 9.0, 18.0)
    assert breaker.state is SHUT


def test_another_process_begins_anew() -> None:
    breaker = opened()
    assert breaker.is_another(1.0)
    assert (breaker.state, breaker.faults) == (SHUT, 0)
    for _ in range(3):
        breaker.fault("reset", 2.0, 2.0)
    assert breaker.look(7.0)


def test_a_mere_suspicion_lets_probes_through_and_others_where_nobody_else_can_take_them() -> None:
    breaker = Breaker(RULES, 0.0)
    assert breaker.suspect("was stalled", 1.0)
    assert (breaker.state, breaker.why, breaker.is_lenient) == (HALF_OPEN, "was stalled", True)
    breaker.fault("no_first_byte", 2.0, 3.0)
    assert breaker.state is OPEN
    breaker.look(8.0)
    assert not breaker.is_lenient


@given(st.lists(st.sampled_from(["left", "refused by us", "4xx"]), max_size=50), st.booleans())
def test_what_is_no_fault_of_the_endpoint_is_not_held_against_it(events: list[str], is_half_open: bool) -> None:
    """A client's mistake is an answer; one that left, and a limit of ours, end nothing and begin nothing."""
    breaker = opened() if is_half_open else Breaker(RULES, 0.0)
    breaker.look(5.0)
    for now_s, event in enumerate(events, start=6):
        is_probe = breaker.probe()
        if event == "4xx":
            breaker.begins_to_answer(now_s)
            breaker.answered(now_s)
        if is_probe:
            breaker.probed()
    assert breaker.state is (HALF_OPEN if is_half_open and "4xx" not in events else SHUT)
    assert (breaker.has_place, breaker.opened) == (True, int(is_half_open))


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order: half open never lets more through than it may, and time always helps."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(RULES, 0.0)
        self.now_s = 0.0
        self.probing: list[float] = []

    @rule(by_s=st.sampled_from([0.1, 1.0, 7.0, 50.0]))
    def time_passes(self, by_s: float) -> None:
        self.now_s += by_s
        self.breaker.look(self.now_s)

    @precondition(lambda self: self.breaker.has_place)
    @rule()
    def sends(self) -> None:
        if self.breaker.probe():
            self.probing.append(self.now_s)

    @precondition(lambda self: self.probing)
    @rule(outcome=st.sampled_from(["answers", "begins", "fails", "left"]))
    def ends(self, outcome: str) -> None:
        began_s = self.probing.pop(0)
        if outcome == "fails":
            self.breaker.fault("reset", began_s, self.now_s)
        elif outcome == "answers":
            self.breaker.answered(self.now_s)
        elif outcome == "begins":
            self.breaker.begins_to_answer(self.now_s)
        self.breaker.probed()

    @rule()
    def fails_late(self) -> None:
        self.breaker.fault("silent", self.now_s - 60.0, self.now_s)

    @rule()
    def fails_now(self) -> None:
        self.breaker.fault("silent", self.now_s, self.now_s)

    @invariant()
    def no_more_probes_than_configured(self) -> None:
        assert len(self.probing) <= RULES.probes

    @invariant()
    def it_never_stays_open_for_longer_than_the_longest(self) -> None:
        if self.breaker.state is OPEN:
            assert self.now_s - self.breaker.since_s < RULES.open_max_s


TestAnyHistory = AnyHistory.TestCase
