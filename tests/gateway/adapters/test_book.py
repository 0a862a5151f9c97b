"""Where an adapter is loaded, what loading it costs, and what is learned of that."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import AdapterSample, LoadSample, PerfModel
from gateway.adapters import AdapterBook, Residency
from gateway.adapters.book import HEAT_S, LEARNED_S, MOST_KEPT
from gateway.scheduling import Candidate, Demand, costs_s, decide_by_cost, terms_of
from gateway.telemetry import Telemetry

SPEED = PerfModel(base_s=0.0, prefill_tokens_per_s=10_000.0, quad_s_per_token2=0.0, itl_s=0.01)
DEMAND = Demand(1000, 1)


class Book:
    """A book whose clock is set by hand."""

    def __init__(self, *, load_s: float = 0.5, slots: int | None = None) -> None:
        self.now_s = 0.0
        self.telemetry = Telemetry()
        self.book = AdapterBook(self.telemetry.adapters, lambda: self.now_s, load_s=load_s, slots=slots)

    def weighed(self, adapter: str, *places: str, **told: AdapterSample) -> dict[str, tuple[float, float]]:
        """What loading and pushing out cost at each place, in seconds."""
        able = [Candidate(place, 0, 0, 0, SPEED) for place in places]
        loads = {place: LoadSample(0.0, adapters=told.get(place)) for place in places}
        found = self.book.weighed(able, adapter, loads)
        return {one.endpoint_id: (one.adapter_load_s, one.adapter_evicts_s) for one in found}

    def metric(self, line: str) -> bool:
        """Whether the page of metrics has this line."""
        return line in self.telemetry.exposition().decode().splitlines()


def at(slots: int | None, *in_use: str) -> LoadSample:
    """A sample of vLLM's."""
    return LoadSample(0.0, adapters=AdapterSample(slots=slots, in_use=frozenset(in_use)))


def test_what_nobody_has_sent_or_said_must_be_loaded_anywhere_alike() -> None:
    assert Book().weighed("sql", "a", "b") == {"a": (0.5, 0.0), "b": (0.5, 0.0)}


def test_an_adapter_is_where_the_engine_says_or_where_it_was_sent_lately() -> None:
    book = Book()
    book.book.sent("b", "sql", None)
    said = AdapterSample(slots=2, in_use=frozenset({"sql"}))
    assert book.weighed("sql", "a", "b", "c", a=said) == {"a": (0.0, 0.0), "b": (0.0, 0.0), "c": (0.5, 0.0)}
    assert book.book.residency("a", "sql", LoadSample(0.0, adapters=said)) is Residency.AT_WORK
    assert book.book.residency("b", "sql", None) is Residency.SENT_LATELY
    assert book.book.residency("c", "sql", None) is Residency.ABSENT


def test_only_as_many_are_loaded_as_the_engine_keeps() -> None:
    book = Book()
    for adapter in ("first", "second", "third"):
        book.book.sent("a", adapter, at(2))
    assert book.book.residency("a", "first", at(2)) is Residency.ABSENT
    assert book.book.residency("a", "second", at(2)) is Residency.SENT_LATELY
    assert book.book.residency("a", "first", None) is Residency.SENT_LATELY, "nobody says how many it keeps"


def test_the_configured_number_of_slots_counts_where_the_engine_tells_none() -> None:
    book = Book(slots=1)
    for adapter in ("first", "second"):
        book.book.sent("a", adapter, None)
    assert book.book.residency("a", "first", None) is Residency.ABSENT
    assert book.book.residency("a", "first", at(2)) is Residency.SENT_LATELY


def test_to_push_out_a_hot_adapter_costs_its_load_again_and_a_cold_one_nothing() -> None:
    book, two = Book(), AdapterSample(slots=2)
    for _ in range(20):
        book.book.sent("hot", "busy", at(2))
    book.book.sent("hot", "busier", at(2))
    book.book.sent("cold", "asleep", at(2))
    book.book.sent("cold", "other", at(2))
    book.book.sent("room", "only", at(2))
    book.now_s = 1e-9
    load_s, evicts_s = book.weighed("sql", "hot", hot=two)["hot"]
    assert load_s == 0.5
    assert evicts_s == pytest.approx(0.5, rel=1e-6)
    assert book.weighed("sql", "room", room=two)["room"] == (0.5, 0.0)
    book.now_s = 100 * HEAT_S
    assert book.weighed("sql", "cold", cold=two)["cold"][1] == pytest.approx(0.0, abs=1e-6)


def test_the_engines_word_counts_no_more_once_as_many_others_have_come_since() -> None:
    book, said = Book(), at(2, "sql")
    book.now_s = 1.0
    book.book.sent("a", "first", said)
    assert book.book.residency("a", "sql", said) is Residency.AT_WORK
    book.book.sent("a", "second", said)
    assert book.book.residency("a", "sql", said) is Residency.ABSENT
    assert book.book.residency("a", "sql", LoadSample(2.0, adapters=said.adapters)) is Residency.AT_WORK


def test_who_is_at_work_is_not_pushed_out() -> None:
    book = Book()
    for adapter in ("old and at work", "newer"):
        book.book.sent("a", adapter, at(2))
    book.now_s = 100 * HEAT_S
    for _ in range(5):
        book.book.sent("a", "old and at work", at(2))
    book.book.sent("a", "newer", at(2))
    told = AdapterSample(slots=2, in_use=frozenset({"old and at work"}))
    _, evicts_s = book.weighed("sql", "a", a=told)["a"]
    assert evicts_s == pytest.approx(0.5 * (1 - math.exp(-1)), rel=1e-3)


def test_a_pool_that_others_have_filled_is_full_too() -> None:
    book = Book()
    book.book.sent("a", "ours", None)
    full, room = AdapterSample(slots=4, used=4), AdapterSample(slots=4, used=3)
    assert book.weighed("sql", "a", a=full)["a"][1] > 0
    assert book.weighed("sql", "a", a=room)["a"][1] == 0


def test_three_first_uses_say_more_than_what_was_believed_and_one_does_not() -> None:
    book = Book(load_s=0.5).book
    book.learn("a", 2.0)
    assert book.load_s("a") == 0.5
    book.learn("a", 2.1)
    assert book.load_s("a") == pytest.approx(1.25)
    book.learn("a/1", 1.9)
    assert book.load_s("a") == 1.9, "its ranks load from the same disk"
    assert book.load_s("b") == 0.5


def test_an_endpoint_whose_disk_was_slow_once_is_tried_again() -> None:
    book = Book(load_s=0.5)
    for _ in range(20):
        book.book.learn("a", 30.0)
    book.now_s = LEARNED_S
    assert book.weighed("sql", "a", "b") == {"a": (30.0, 0.0), "b": (0.5, 0.0)}
    book.now_s = LEARNED_S + 1
    assert book.weighed("sql", "a", "b") == {"a": (0.5, 0.0), "b": (0.5, 0.0)}


@given(st.lists(st.floats(-10, 100), max_size=40))
def test_what_is_learned_lies_between_what_was_seen_and_believed(samples: list[float]) -> None:
    book = Book().book
    for seconds in samples:
        book.learn("a", seconds)
    seen = [0.5, *(max(seconds, 0.0) for seconds in samples)]
    assert min(seen) <= book.load_s("a") <= max(seen)


def test_a_restarted_engine_has_none_loaded_and_its_disk_is_as_slow_as_before() -> None:
    book = Book()
    book.book.sent("a/0", "sql", None)
    book.book.sent("b", "sql", None)
    for _ in range(3):
        book.book.learn("a/0", 2.0)
    book.book.new_generation("a", 7)
    assert book.book.residency("a/0", "sql", None) is Residency.ABSENT
    assert book.book.residency("b", "sql", None) is Residency.SENT_LATELY
    assert book.book.load_s("a") == 2.0
    book.book.removed("a")
    assert book.book.load_s("a") == 0.5


def test_an_adapter_that_is_listed_no_more_is_not_loaded_any_more() -> None:
    book = Book().book
    for adapter in ("kept", "unloaded"):
        book.sent("a/1", adapter, None)
    book.listed("a", frozenset({"kept"}))
    found = {name: book.residency("a/1", name, None) for name in ("kept", "unloaded")}
    assert [*found.values()] == [Residency.SENT_LATELY, Residency.ABSENT]


def test_adapters_without_end_keep_the_book_and_the_metrics_small() -> None:
    book = Book()
    for number in range(5):
        book.book.sent("a", f"earlier {number}", at(4))
    lines = len(book.telemetry.exposition().splitlines())
    for number in range(1_000):
        book.book.sent("a", f"adapter {number}", at(4))
    assert len(book.book._places["a"].heats) == MOST_KEPT
    assert len(book.telemetry.exposition().splitlines()) == lines
    assert book.metric('prefixgate_adapter_requests_total{endpoint="a",residency="absent"} 1005.0')
    assert book.metric('prefixgate_adapter_evictions_total{endpoint="a"} 1001.0')


def test_a_prefix_is_worth_its_seconds_and_so_is_an_adapter_that_is_loaded() -> None:
    has_adapter = Candidate("adapter", 0, 0, 0, SPEED)
    has_prefix = Candidate("prefix", 900, 900, 0, SPEED, adapter_load_s=0.5)
    assert costs_s([has_adapter, has_prefix], DEMAND) == [pytest.approx(0.1), pytest.approx(0.51)]
    chosen = decide_by_cost([has_adapter, has_prefix], {}, demand=DEMAND, near_tie_s=0.0, chance=0.5)
    assert chosen.endpoint_id == "adapter"
    longer = Demand(10_000, 1)
    has_prefix = Candidate("prefix", 9_000, 9_000, 0, SPEED, adapter_load_s=0.5)
    chosen = decide_by_cost([has_adapter, has_prefix], {}, demand=longer, near_tie_s=0.0, chance=0.5)
    assert chosen.endpoint_id == "prefix"


def test_who_comes_behind_waits_for_the_adapter_too() -> None:
    candidate = Candidate("a", 0, 0, 0, SPEED, adapter_load_s=0.5)
    decision = decide_by_cost([candidate], {}, demand=DEMAND, near_tie_s=0.0, chance=0.5)
    assert (decision.work_tokens, decision.queue_tokens) == (1000, 6000)
    assert SPEED.wait_s(decision.queue_tokens) == pytest.approx(0.6)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 50))
def test_the_terms_of_an_adapter_are_what_its_cost_is_made_of(load_s: float, evicts_s: float, behind: float) -> None:
    candidate = Candidate("a", 0, 0, 0, SPEED, adapter_load_s=load_s, adapter_evicts_s=evicts_s if load_s else 0.0)
    demand = Demand(1000, 1, behind=behind)
    terms = terms_of(candidate, demand)
    assert terms.cost_s == pytest.approx(costs_s([candidate], demand)[0])
    assert terms.adapter_load_s == load_s
