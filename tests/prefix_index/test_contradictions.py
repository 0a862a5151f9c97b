"""A restart is noticed within three receipts; eviction, however fierce, is not taken for one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index import contradictions
from prefix_index.contradictions import MOST_OPEN, RARE_S, Comparison, Contradictions
from prefix_index.fill_rates import FillRates
from prefix_index.survival import SurvivalBook
from tests.prefix_index.lru_cache import Clients, LruCache


def gone(lost: str, *, at_s: float, used_s: float | None = 0.0, there: int = 0, survival: float = 0.98) -> Comparison:
    """A run of 1,000 tokens, last used at `used_s`, of which `there` were there at `at_s`."""
    age_s = None if used_s is None else at_s - used_s
    return Comparison(1000, there, age_s, None, survival, at_s, lost.encode())


def there(*, at_s: float, used_s: float | None = 0.0) -> Comparison:
    return gone("", at_s=at_s, used_s=used_s, there=1000)


def restarts(*seen: Comparison) -> list[int]:
    """At which of the comparisons, by number, a restart was found; each is taken a second after it was sent."""
    book: Contradictions[str] = Contradictions()
    return [number for number, one in enumerate(seen, 1) if book.add("a", one, one.sent_s + 1).restarted]


def test_three_runs_that_were_surely_there_and_are_gone_are_a_restart_and_two_are_none() -> None:
    assert restarts(*(gone(name, at_s=100 + at) for at, name in enumerate("xyz"))) == [3]
    assert restarts(gone("x", at_s=100), gone("y", at_s=101)) == []


def test_a_shared_prefix_that_many_prompts_miss_is_one_loss() -> None:
    assert restarts(*(gone("shared", at_s=100 + at) for at in range(20))) == []


def test_what_was_not_likely_there_says_nothing_and_a_half_says_less() -> None:
    assert restarts(*(gone(str(at), at_s=100 + at, survival=0.4) for at in range(50))) == []
    assert restarts(*(gone(str(at), at_s=100 + at, survival=0.7) for at in range(9))) == [6]
    assert restarts(*(gone(str(at), at_s=100 + at, there=250) for at in range(6))) == [5]


def test_a_run_of_that_time_which_is_there_shows_that_there_was_no_restart() -> None:
    x, y, z = (gone(name, at_s=100 + at) for at, name in enumerate("xyz"))
    assert restarts(x, y, there(at_s=101.5), z) == []
    assert restarts(x, y, there(at_s=101.5, used_s=None), z) == []


def test_what_was_computed_after_the_restart_is_there_and_shows_nothing() -> None:
    x, y, z = (gone(name, at_s=100 + at) for at, name in enumerate("xyz"))
    assert restarts(x, there(at_s=100.5, used_s=90), y, there(at_s=101.5, used_s=99.5), z) == [5]


def test_an_answer_that_was_under_way_narrows_the_time() -> None:
    earlier = Comparison(1000, 1000, 60.0, None, 0.98, 50.0)  # sent at 50, there; its answer ends late
    x, y = gone("x", at_s=100), gone("y", at_s=101, used_s=-50)
    old = gone("z", at_s=49, used_s=-20)  # was gone at 49 already: another moment
    assert restarts(x, earlier, y, gone("z", at_s=102)) == [4]
    assert restarts(x, earlier, y, old) == []
    inside = there(at_s=60, used_s=40)
    assert restarts(x, inside, y, gone("z", at_s=102)) == [4]


def test_losses_that_no_one_moment_explains_are_no_restart() -> None:
    assert restarts(*(gone(str(at), at_s=100 * at, used_s=100 * at - 60) for at in range(1, 20))) == []


def test_what_was_sent_before_the_holder_was_cleared_says_nothing() -> None:
    book: Contradictions[str] = Contradictions()
    for at, name in enumerate("xyz"):
        found = book.add("a", gone(name, at_s=100 + at), now_s=110)
    assert found.restarted
    for name in "uvw":
        assert book.add("a", gone(name, at_s=105), now_s=111) == contradictions.Finding()
    book.cleared("a", now_s=200)
    for name in "uvw":
        assert book.add("a", gone(name, at_s=199), now_s=201) == contradictions.Finding()
    book.forget("a")
    assert [book.add("a", gone(name, at_s=199), now_s=201).restarted for name in "uvw"] == [False, False, True]


def test_an_open_case_teaches_when_it_closes_and_a_rare_restart_teaches_nothing() -> None:
    book: Contradictions[str] = Contradictions()
    x, y, agrees = gone("x", at_s=100), gone("y", at_s=101), there(at_s=102)
    assert book.add("a", x, 100).learnable == ()
    assert book.add("a", y, 101).learnable == ()
    assert book.add("a", agrees, 102).learnable == (x, y, agrees)
    assert book.add("a", agrees, 103).learnable == (agrees,)
    later = gone("z", at_s=500, used_s=400)
    assert book.add("a", x, 103).learnable == ()
    assert book.add("a", later, 500).learnable == (x,)
    for start_s, taught in ((1000, 0), (2000, 3), (3000 + RARE_S, 0)):
        found = [book.add("b", gone(name, at_s=start_s + at), start_s + at) for at, name in enumerate("xyz")]
        assert [one.restarted for one in found] == [False, False, True]
        assert len(found[-1].learnable) == taught


def test_cases_and_holders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    book: Contradictions[int] = Contradictions()
    vague = [gone(str(at), at_s=100 + at, survival=0.51, there=450) for at in range(MOST_OPEN + 1)]
    assert [len(book.add(0, one, one.sent_s).learnable) for one in vague][-1] == MOST_OPEN + 1
    monkeypatch.setattr(contradictions, "MOST_HOLDERS", 3)
    for holder in range(10):
        book.add(holder, gone("x", at_s=100), 100)
    assert len(book._holders) == 3


class Watched:
    """One engine as a gateway sees it that has nothing but receipts."""

    def __init__(self, capacity: int, *, capacity_known: bool, seed: int, prompts: int = 300) -> None:
        self.clients = Clients(random.Random(seed), prompts=prompts)
        self.cache = LruCache(capacity)
        self._capacity = capacity if capacity_known else None
        self._book: SurvivalBook[str] = SurvivalBook()
        self._fills: FillRates[str] = FillRates()
        self._contradictions: Contradictions[str] = Contradictions()

    def receipts(self, visits: int) -> tuple[int, int]:
        """Serve so many requests, or until a restart is noticed: restarts, and contradictions that were surprising."""
        surprising = 0
        for visit in self.clients.visits(self.cache, visits):
            turnovers = self._fills.turnovers("e", visit.age_s, self._capacity, visit.at_s)
            self._fills.note("e", visit.blocks - visit.reported, visit.at_s)
            if visit.age_s is None:
                continue
            sure = self._book.assured("e", visit.age_s, turnovers)
            lost = b"%d:%d" % (visit.prompt, visit.reported)
            seen = Comparison(visit.confirmed * 16, visit.reported * 16, visit.age_s, turnovers, sure, visit.at_s, lost)
            surprising += visit.reported == 0 and sure >= 0.9
            found = self._contradictions.add("e", seen, visit.at_s)
            for one in found.learnable:
                self._book.learn("e", one.age_s, one.turnovers, one.expected_tokens, one.reported_tokens)
            if found.restarted:
                self.clients.forget_all()
                return 1, surprising
        return 0, surprising


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_a_wiped_cache_is_noticed_within_three_receipts_that_should_have_been_hits(
    seed: int, capacity_known: bool
) -> None:
    engine = Watched(20_000, capacity_known=capacity_known, seed=seed, prompts=100)
    for _ in range(3):
        assert engine.receipts(800) == (0, 0)
        engine.cache.wipe()
        restarts, surprising = engine.receipts(100)
        assert restarts == 1
        assert surprising <= 3


@pytest.mark.parametrize("capacity_known", [True, False])
@pytest.mark.parametrize("capacity", [1000, 2000, 4000])
def test_a_cache_far_too_small_is_not_taken_for_one_that_was_wiped(capacity: int, capacity_known: bool) -> None:
    restarts, _ = Watched(capacity, capacity_known=capacity_known, seed=5).receipts(5000)
    assert restarts == 0
