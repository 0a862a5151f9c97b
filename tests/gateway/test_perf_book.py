"""The book of fitted speeds: whose seconds are whose, restarts, doubt, and what a gateway shows of it."""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest

from backends import EndpointId, PerfModel
from backends.reference.embedded import RunningEngine
from billing import Usage
from gateway.perf_book import DOUBTED_AFTER_S, PerfBook
from gateway.perf_kinds import LEAST_SAMPLES
from gateway.perf_lines import SUMMED_PROMPTS, Prefill
from gateway.scheduling import Candidate, Decision, Demand
from gateway.telemetry import Telemetry
from gateway.types import Reason
from tests.gateway.conftest import MODEL, STORY, StartGateway, settled, start

PRIOR = PerfModel(base_s=0.01, prefill_tokens_per_s=8000.0)
TRUTH = PerfModel(base_s=0.03, prefill_tokens_per_s=2000.0, quad_s_per_token2=5e-9)


@dataclass
class Book:
    """A book under a clock of its own, and what decisions were told."""

    names: tuple[str, ...] = ("a",)
    now_s: float = 100.0
    told: dict[str, PerfModel] = field(default_factory=dict)
    telemetry: Telemetry = field(default_factory=Telemetry)

    def __post_init__(self) -> None:
        priors = {EndpointId(name): PRIOR for name in self.names}
        self.book = PerfBook(priors, self.telemetry.speed, lambda: self.now_s, self.told.__setitem__)

    def send(self, tokens: int, *, to: str = "a", queued: int = 0, streams: bool = True) -> Prefill:
        candidates = [Candidate(name, 0, 0, queued, self.book.speed_of(name)) for name in self.names]
        chosen = next(candidate for candidate in candidates if candidate.endpoint_id == to)
        decision = Decision(chosen, Reason.NO_PREFIX, candidates, {}, Demand(tokens, 1))
        return self.book.dispatched(decision, streams=streams)

    def settle(self, prefill: Prefill, tokens: int, cached: int | None = 0) -> None:
        self.book.settled(prefill, Usage(tokens, cached, 1), None)

    def serve(self, tokens: int, seconds: float, to: str = "a") -> None:
        """One request, alone."""
        prefill = self.send(tokens, to=to)
        self.now_s += seconds
        prefill.first_token(self.now_s)
        self.settle(prefill, tokens)

    def samples(self, kind: str) -> float:
        value = self.telemetry.registry.get_sample_value(
            "prefixgate_perf_samples_total", {"endpoint": "a", "kind": kind}
        )
        return value or 0.0


def lengths(rng: random.Random) -> int:
    return rng.choice([50, 200, 1000, 3000])


def rate_error(book: Book, truth: PerfModel = TRUTH) -> float:
    return abs(book.book.speed_of("a").prefill_tokens_per_s / truth.prefill_tokens_per_s - 1)


def test_prompts_alone_tell_the_speed_and_the_decisions_see_it() -> None:
    book, rng = Book(), random.Random(1)
    for _ in range(200):
        tokens = lengths(rng)
        book.serve(tokens, TRUTH.prefill_s(tokens, tokens) * rng.lognormvariate(0, 0.05))
        book.now_s += 0.3
    assert rate_error(book) < 0.1
    assert book.told["a"] == book.book.speed_of("a")
    assert book.samples("alone") + book.samples("clamped") == 200


@dataclass
class Arrival:
    at_s: float
    tokens: int
    first_token_s: float = 0.0


def one_after_the_other(arrivals: list[Arrival]) -> None:
    free_s = 0.0
    for one in arrivals:
        free_s = one.first_token_s = max(free_s, one.at_s) + TRUTH.prefill_s(one.tokens, one.tokens)


def in_steps_of_four(arrivals: list[Arrival]) -> None:
    """All that wait, up to four, are computed in one step, and their first tokens come together."""
    free_s, left = 0.0, list(arrivals)
    while left:
        begins_s = max(free_s, left[0].at_s)
        step = [one for one in left[:4] if one.at_s <= begins_s]
        free_s = begins_s + sum(TRUTH.prefill_s(one.tokens, one.tokens) for one in step)
        for one in step:
            one.first_token_s = free_s
        left = left[len(step) :]


def shortest_first(arrivals: list[Arrival]) -> None:
    free_s, left = 0.0, list(arrivals)
    while left:
        begins_s = max(free_s, min(one.at_s for one in left))
        one = min((one for one in left if one.at_s <= begins_s), key=lambda one: one.tokens)
        free_s = one.first_token_s = begins_s + TRUTH.prefill_s(one.tokens, one.tokens)
        left.remove(one)


@pytest.mark.parametrize("use", [0.5, 0.9, 1.2])
@pytest.mark.parametrize("engine", [one_after_the_other, in_steps_of_four, shortest_first])
def test_a_queue_hides_nothing_whatever_the_order_of_the_engine(
    engine: Callable[[list[Arrival]], None], use: float
) -> None:
    rng, at_s, arrivals = random.Random(3), 100.0, []
    mean_s = sum(TRUTH.prefill_s(n, n) for n in (50, 200, 1000, 3000)) / 4
    for _ in range(400):
        at_s += rng.expovariate(use / mean_s)
        arrivals.append(Arrival(at_s, lengths(rng)))
    engine(arrivals)
    book = Book()
    sent: dict[int, Prefill] = {}
    events = [(one.at_s, 0, at) for at, one in enumerate(arrivals)]
    events += [(one.first_token_s, 1, at) for at, one in enumerate(arrivals)]
    for book.now_s, kind, at in sorted(events):
        if kind == 0:
            sent[at] = book.send(arrivals[at].tokens)
        else:
            sent[at].first_token(book.now_s)
            book.settle(sent[at], arrivals[at].tokens)
    fitted = book.book.speed_of("a")
    assert fitted.prefill_s(1000, 1000) == pytest.approx(TRUTH.prefill_s(1000, 1000), rel=0.1)
    assert fitted.prefill_s(3000, 3000) == pytest.approx(TRUTH.prefill_s(3000, 3000), rel=0.1)
    assert book.samples("summed") > 0


def test_seconds_in_which_another_prompt_was_computed_are_not_counted_twice() -> None:
    book = Book()
    first = book.send(1000)
    book.now_s += 0.5
    second = book.send(1000)
    book.now_s += 0.5
    first.first_token(book.now_s)
    book.now_s += 1.0
    second.first_token(book.now_s)
    assert (first.seconds, second.seconds) == (1.0, 1.0)


def test_an_answer_that_is_no_stream_lends_its_tokens_to_the_next_first_token() -> None:
    book, rng = Book(), random.Random(5)
    for _ in range(400):
        unseen, tokens = lengths(rng), lengths(rng)
        book.send(unseen, streams=False)
        prefill = book.send(tokens)
        book.now_s += TRUTH.prefill_s(unseen, unseen) + TRUTH.prefill_s(tokens, tokens)
        prefill.first_token(book.now_s)
        book.settle(prefill, tokens)
        book.now_s += 1.0
    fitted = book.book.speed_of("a")
    assert fitted.prefill_s(3000, 3000) == pytest.approx(TRUTH.prefill_s(3000, 3000), rel=0.15)


def test_an_answer_that_is_no_stream_lends_nothing_once_it_is_whole() -> None:
    book = Book()
    whole = book.send(100_000, streams=False)
    book.now_s += 1.0
    whole.answered_whole(book.now_s)
    book.serve(1000, 0.5)
    assert book.samples("alone") == 1


def test_what_other_replicas_have_queued_there_is_taken_into_account() -> None:
    book, rng = Book(), random.Random(6)
    for _ in range(400):
        others, tokens = rng.choice([500, 1000]), lengths(rng)
        prefill = book.send(tokens, queued=others)
        book.now_s += others / TRUTH.prefill_tokens_per_s + TRUTH.prefill_s(tokens, tokens)
        prefill.first_token(book.now_s)
        book.settle(prefill, tokens)
        book.now_s += 1.0
    assert rate_error(book) < 0.15


def test_our_own_queue_is_not_taken_for_that_of_others() -> None:
    book = Book()
    waiting = [book.send(1000, queued=1000 * ahead) for ahead in range(SUMMED_PROMPTS)]
    for prefill in waiting:
        book.now_s += 0.5
        prefill.first_token(book.now_s)
    for prefill in waiting:
        book.settle(prefill, 1000)
    assert book.samples("summed") == 1
    assert book.book.speed_of("a").prefill_tokens_per_s < PRIOR.prefill_tokens_per_s


@pytest.mark.parametrize(("cached", "tokens"), [(None, 100), (100, 100), (200, 100)])
def test_what_was_not_reported_or_cannot_be_is_not_learned_from(cached: int | None, tokens: int) -> None:
    book = Book()
    for _ in range(20):
        book.serve(1000, 0.5)
    book.told.clear()
    prefill = book.send(tokens)
    book.now_s += 9.0
    prefill.first_token(book.now_s)
    book.settle(prefill, tokens, cached)
    assert not book.told


def test_an_endpoint_of_which_little_is_known_is_learned_of_before_its_answers_end() -> None:
    book = Book(names=("a", "b"))
    for _ in range(LEAST_SAMPLES):
        for name, seconds in (("a", 0.2), ("b", 2.0)):
            prefill = book.send(1000, to=name)
            book.now_s += seconds
            prefill.first_token(book.now_s)
            if name == "a":
                book.settle(prefill, 1000)
    for _ in range(20):
        book.serve(1000, 0.2, to="a")
    assert book.book.speed_of("b").prefill_s(1000, 1000) > 1.0


def test_what_was_learned_early_is_not_learned_again() -> None:
    book = Book()
    prefill = book.send(1000)
    book.now_s += 0.5
    prefill.first_token(book.now_s)
    for _ in range(3):
        book.settle(prefill, 1000)
    assert book.samples("alone") == 1


def test_a_prompt_that_failed_is_in_nobodys_way() -> None:
    book = Book()
    failed = book.send(5000)
    failed.end()
    failed.end()
    failed.first_token(book.now_s)
    book.serve(1000, 0.5)
    assert book.samples("alone") == 1


def test_a_restarted_engine_is_as_its_prior_says_and_late_answers_of_the_old_one_say_nothing() -> None:
    book = Book()
    for _ in range(20):
        book.serve(1000, 0.5)
    late = book.send(1000)
    book.now_s += 0.5
    late.first_token(book.now_s)
    assert book.told["a"] != PRIOR
    book.book.new_generation("a", 7)
    assert book.told["a"] == PRIOR
    book.settle(late, 1000)
    assert book.told["a"] == PRIOR
    book.serve(1000, 0.5)
    assert book.told["a"] != PRIOR


def test_small_moves_are_not_told() -> None:
    book, rng = Book(), random.Random(8)
    for at in range(300):
        if at == 290:
            del book.told["a"]
        tokens = lengths(rng)
        book.serve(tokens, TRUTH.prefill_s(tokens, tokens))
    assert not book.told


def test_who_looks_slow_and_is_never_asked_is_doubted_and_one_request_says_what_is_true() -> None:
    book = Book(names=("a", "b"))
    for _ in range(30):
        book.serve(1000, 0.2, to="a")
        book.serve(1000, 2.0, to="b")
    slow_s = book.book.speed_of("b").prefill_s(1000, 1000)
    while (hoped_s := book.book.speed_of("b").prefill_s(1000, 1000)) == slow_s:
        book.serve(1000, 0.2, to="a")
        assert book.now_s < 300.0 + DOUBTED_AFTER_S
    assert hoped_s == pytest.approx(0.2, rel=0.1)
    book.serve(1000, 2.0, to="b")
    assert book.book.speed_of("b").prefill_s(1000, 1000) > 1.5
    book.now_s += 2 * DOUBTED_AFTER_S
    for _ in range(3):
        book.serve(1000, 0.2, to="a")
        book.now_s += 20
    for _ in range(3):
        book.serve(1000, 0.2, to="b")
    assert book.book.speed_of("b").prefill_s(1000, 1000) < 0.6


def test_who_was_never_asked_since_its_prior_is_slow_is_hoped_to_be_like_the_others() -> None:
    book = Book(names=("a", "b"))
    while book.book.speed_of("b").prefill_s(1000, 1000) > 1.1 * 0.0135:
        book.serve(1000, 0.0135, to="a")
        assert book.now_s < 110.0 + DOUBTED_AFTER_S
        book.now_s += 1.0
    hoped_s = book.book.speed_of("b").prefill_s(1000, 1000)
    assert hoped_s == pytest.approx(0.0135, rel=0.1)
    book.serve(1000, 0.0135, to="b")
    assert book.book.speed_of("b").prefill_s(1000, 1000) == pytest.approx(hoped_s, rel=0.1)


def test_engines_that_hardly_differ_are_taken_for_one_another_and_others_are_not() -> None:
    book = Book(names=("a", "b", "c"))
    for _ in range(60):
        book.serve(1000, 0.200, to="a")
        book.serve(1000, 0.210, to="b")
        book.serve(1000, 0.400, to="c")
    a, b, c = (book.book.speed_of(name) for name in "abc")
    assert replace(a, itl_s=0) == replace(b, itl_s=0)
    assert c.prefill_s(1000, 1000) == pytest.approx(0.4, rel=0.1)
    shown = [
        book.telemetry.registry.get_sample_value("prefixgate_perf_prefill_tokens_per_second", {"endpoint": name})
        for name in "ab"
    ]
    assert shown[0] != shown[1]


def test_who_restarts_is_hoped_to_be_like_the_others_until_it_is_known() -> None:
    book = Book(names=("a", "b"))
    for _ in range(30):
        book.serve(1000, 0.5, to="a")
        book.serve(1000, 0.5, to="b")
    book.book.new_generation("b", 7)
    assert book.told["b"].prefill_s(1000, 1000) == pytest.approx(0.5, rel=0.1)


def test_an_endpoint_as_fast_as_it_looks_is_left_alone() -> None:
    book = Book(names=("a", "b"))
    for _ in range(30):
        book.serve(1000, 2.0, to="a")
        book.serve(1000, 0.2, to="b")
    told = book.book.speed_of("b")
    for _ in range(150):
        book.serve(1000, 2.0, to="a")
    assert book.book.speed_of("b") == told


def test_the_time_between_tokens_is_learned_from_answers_long_enough_to_have_one() -> None:
    book = Book()
    prefill = book.send(100)
    for _ in range(20):
        book.book.settled(prefill, Usage(100, None, 3), 9.0)
        book.book.settled(prefill, Usage(100, None, 11), 0.5)
    assert book.told["a"].itl_s == pytest.approx(0.05)
    assert book.samples("decode") == 20


async def test_a_gateway_learns_from_its_streams_and_writes_seconds_to_the_ledger(
    engine: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await start(start_gateway, engine.url, scheduling__prefill_tokens_per_s=10.0)
    assert gateway.metric("prefixgate_perf_prefill_tokens_per_second", endpoint="e0") == 10.0
    for turn in range(12):
        body = {"model": MODEL, "prompt": f"{turn} {STORY}", "max_tokens": 8, "stream": turn % 3 > 0}
        assert (await asyncio.to_thread(gateway.http.post, "/v1/completions", json=body)).status_code == 200
    await settled(gateway, 12)
    assert gateway.metric("prefixgate_perf_prefill_tokens_per_second", endpoint="e0") > 20.0
    assert gateway.metric("prefixgate_perf_samples_total", endpoint="e0", kind="decode") == 8
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        rows = connection.execute("SELECT prefill_s, decode_s FROM settlements ORDER BY settled_at_us").fetchall()
    assert [decode_s is None for _, decode_s in rows] == [True, False, False] * 4
    assert rows[0][0] is None  # nothing was measured yet
    assert 0 < rows[-1][0] < 5
    assert all(decode_s > 0 for _, decode_s in rows if decode_s is not None)


def test_seconds_for_the_ledger_are_unknown_until_the_fit_is_more_than_its_prior() -> None:
    book = Book()
    assert book.book.prefill_s("a", Usage(1000, 0, 1)) is None
    for _ in range(20):
        book.serve(1000, 0.5)
    assert book.book.prefill_s("a", Usage(1000, 0, 1)) == pytest.approx(0.5, rel=0.1)
    assert book.book.prefill_s("a", Usage(1000, None, 1)) is None
