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


def test_a_clock_that_went_back_starts_the_book_anew() -> None:
    book = LoadBook(stale_after_s=1)
    book.learn([("r1", 1000, {"a": ONE}), ("r2", 1001, {"b": ONE})], 1002)
    book.learn([("r1", 5, {"a": TWO})], 6)
    assert book.merged(6) == {"a": TWO}
    assert book.beat_us == 5


def test_our_own_word_is_left_out_but_known_as_heard() -> None:
    book = LoadBook(stale_after_s=1, own_replica="r1")
    book.learn([("r1", 10, {"a": ONE})], 10)
    assert book.merged(10) == {}
    assert book.beat_us == 10
