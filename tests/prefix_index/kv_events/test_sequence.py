"""What the number of a message says."""

from prefix_index.kv_events import Arrival, SequenceTracker

IN_ORDER, DUPLICATE, GAP, RESTARTED = Arrival.IN_ORDER, Arrival.DUPLICATE, Arrival.GAP, Arrival.RESTARTED


def live(tracker: SequenceTracker, *numbers: int) -> list[Arrival]:
    return [tracker.feed(number) for number in numbers]


def replay(tracker: SequenceTracker, *numbers: int) -> list[Arrival]:
    return [tracker.feed(number, replayed=True) for number in numbers]


def test_messages_from_the_first_on_are_in_order() -> None:
    assert live(SequenceTracker(), 0, 1, 2) == [IN_ORDER] * 3


def test_who_listens_late_has_a_gap_from_the_beginning() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 7) == [GAP]
    assert tracker.expected == 0
    assert replay(tracker, 0, 1, 2, 3, 4, 5, 6, 7, 8) == [IN_ORDER] * 9
    assert live(tracker, 7, 8, 9) == [DUPLICATE, DUPLICATE, IN_ORDER]


def test_a_gap_takes_nothing_until_it_is_filled() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 0, 3) == [IN_ORDER, GAP]
    assert replay(tracker, 1, 2) == [IN_ORDER, IN_ORDER]
    assert live(tracker, 3, 4) == [IN_ORDER, IN_ORDER]


def test_a_replay_that_begins_too_late_is_a_gap_that_one_jumps() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 0, 9) == [IN_ORDER, GAP]
    assert replay(tracker, 5) == [GAP]
    tracker.jump(5)
    assert replay(tracker, 6, 7, 8, 9) == [IN_ORDER] * 4
    assert live(tracker, 9, 10) == [DUPLICATE, IN_ORDER]


def test_what_a_replay_repeats_is_a_copy_however_low_its_number() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 0, 1, 2) == [IN_ORDER] * 3
    assert replay(tracker, 0, 1, 2, 3) == [DUPLICATE, DUPLICATE, DUPLICATE, IN_ORDER]


def test_a_live_number_that_does_not_rise_is_another_process() -> None:
    for again in (0, 1, 2):
        tracker = SequenceTracker()
        assert live(tracker, 0, 1, 2, again) == [IN_ORDER] * 3 + [RESTARTED]
        assert tracker.expected == 0
        assert live(tracker, again) == [IN_ORDER if again == 0 else GAP]


def test_a_restart_is_seen_behind_a_replay_and_behind_a_jump() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 5) == [GAP]
    tracker.jump(5)
    assert live(tracker, 6, 0, 0, 1) == [IN_ORDER, RESTARTED, IN_ORDER, IN_ORDER]
    assert live(tracker, 4) == [GAP]
    assert replay(tracker, 2, 3, 4) == [IN_ORDER] * 3
    assert live(tracker, 4, 2) == [DUPLICATE, RESTARTED]


def test_one_restart_after_another_is_seen_though_nothing_was_taken_between() -> None:
    tracker = SequenceTracker()
    assert live(tracker, 0, 1, 2, 3, 4, 0, 0, 0, 0) == [IN_ORDER] * 5 + [RESTARTED, IN_ORDER, RESTARTED, IN_ORDER]
    assert live(tracker, 9, 3) == [GAP, RESTARTED]


def test_messages_that_come_as_one_take_all_their_numbers() -> None:
    tracker = SequenceTracker()
    assert tracker.feed(0, last=4) is IN_ORDER
    assert tracker.feed(7, last=9) is GAP
    tracker.jump(7, last=9)
    assert tracker.feed(10, last=10) is IN_ORDER
    assert tracker.feed(3, last=5) is RESTARTED
