"""What other replicas have outstanding: fresh word counts, late word never replaces newer."""

from prefix_index.load_book import LoadBook
from prefix_index.types import Load

ONE, TWO = Load(1, 10, 100), Load(2, 20, 200)


def test_the_latest_word_of_each_replica_counts() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 10, {"a": ONE}), ("r2", 11, {"a": TWO, "b": ONE})], 20)
    assert book.merged(20) == {"a": Load(3, 30, 300), "b": ONE}
    assert book.beat_us == 11
    book.learn([("r1", 12, {})], 20)
    assert book.merged(20) == {"a": TWO, "b": ONE}


def test_replies_that_overtake_each_other_do_no_harm() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 12, {"a": TWO})], 20)
    book.learn([("r1", 10, {"a": ONE})], 19)
    assert book.merged(20) == {"a": TWO}
    assert book.beat_us == 12


def test_a_silent_replica_stops_counting_and_counts_again_when_it_speaks() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 10, {"a": ONE})], 10)
    assert book.merged(1_000_010) == {"a": ONE}
    assert book.merged(1_000_011) == {}
    book.learn([("r1", 1_000_020, {"a": ONE})], 1_000_020)
    assert book.merged(1_000_020) == {"a": ONE}


def test_a_reply_to_an_earlier_question_read_later_forgets_nobody() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 1_000_000, {"a": ONE})], 1_000_500)
    book.learn([("r2", 1_002_000, {"b": TWO})], 1_002_500)
    book.learn([], 1_001_000)
    assert book.merged(1_001_000) == {"a": ONE, "b": TWO}
    assert book.beat_us == 1_002_000


def test_a_clock_that_went_back_starts_the_book_anew() -> None:
    book = LoadBook(stale_after_s=10)
    book.learn([("r1", 5_000_000, {"a": ONE}), ("r2", 5_000_001, {"b": ONE})], 5_000_002)
    book.learn([("r1", 3_000_005, {"a": TWO})], 3_000_006)
    assert book.merged(3_000_006) == {"a": TWO}
    assert book.beat_us == 3_000_005


def test_a_beat_of_a_time_that_was_taken_back_is_no_sign_of_life() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 1_000_000, {"a": ONE}), ("r2", 86_400_000_000, {"b": TWO})], 1_000_001)
    assert book.merged(1_000_001) == {"a": ONE}


def test_our_own_word_is_left_out_but_known_as_heard() -> None:
    book = LoadBook(stale_after_s=1, own_replica="r1")
    book.learn([("r1", 10, {"a": ONE})], 10)
    assert book.merged(10) == {}
    assert book.beat_us == 10
