"""The simulated engine, by cases whose times one can compute by hand."""

import struct
from dataclasses import replace
from itertools import count
from math import inf

import pytest

from backends.perf import PerfModel
from backends.simulated import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job, Role, SimulatedEngine

# A token of a prompt takes 10 ms beside half a second at its start; a step of answers 100 ms.
PERF = PerfModel(base_s=0.5, prefill_tokens_per_s=100.0, quad_s_per_token2=0.0, itl_s=0.1)
SPEC = EngineSpec(block_size=4, capacity_blocks=20, perf=PERF, chunk_tokens=64)


def job(number: int, prompt_tokens: int, output_tokens: int, first_block: int = 1) -> Job:
    names = range(first_block, first_block + prompt_tokens // 4)
    return Job(number, struct.pack(f"<{len(names)}Q", *names), prompt_tokens, output_tokens)


def run(engine: SimulatedEngine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while (next_s := engine.next_s()) < inf:
        events += engine.advance(next_s)
    return rounded(events)


def rounded(events: list[EngineEvent]) -> list[EngineEvent]:
    return [replace(event, at_s=round(event.at_s, 9)) for event in events]


def first(number: int, at_s: float, cached_tokens: int = 0, host_tokens: int = 0) -> FirstToken:
    return FirstToken(number, round(at_s, 9), cached_tokens, host_tokens)


def finished(number: int, at_s: float) -> Finished:
    return Finished(number, round(at_s, 9))


def test_a_cold_prompt_takes_its_prefill_and_then_a_step_for_each_further_token() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 10, 4), 1.0)
    assert run(engine) == [first(0, 1 + 0.5 + 0.10), finished(0, 1.6 + 3 * 0.1)]
    assert (engine.work.uncached_tokens, engine.work.output_tokens) == (10, 4)
    assert engine.work.busy_s == pytest.approx(0.9)


def test_a_warm_prompt_computes_the_rest_and_always_its_last_token() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 12, 1), 0.0)
    engine.submit(job(1, 12, 1), 10.0)
    engine.submit(job(2, 13, 1), 20.0)
    ttft_s = 0.5 + 0.12
    assert run(engine) == [
        first(0, ttft_s),
        finished(0, ttft_s),
        first(1, 10 + 0.5 + 0.04, cached_tokens=8),
        finished(1, 10.54),
        first(2, 20 + 0.5 + 0.01, cached_tokens=12),
        finished(2, 20.51),
    ]
    sample = engine.sample(30.0)
    assert (sample.prefix_queries, sample.prefix_hits) == (37, 20)


def test_equal_prompts_of_one_step_share_nothing_yet_and_later_ones_share_all() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 4, 1, first_block=100), 0.0)
    for number in (1, 2):
        engine.submit(job(number, 9, 1), 0.1)  # both wait for the end of the step at 0.54
    engine.submit(job(3, 9, 1), 0.6)
    firsts = [event for event in run(engine) if isinstance(event, FirstToken)]
    both_s = 0.54 + 2 * (0.5 + 0.09)
    assert firsts == [first(0, 0.54), first(1, both_s), first(2, both_s), first(3, both_s + 0.51, cached_tokens=8)]


def test_the_chunks_of_a_long_prompt_slow_an_answer_that_is_being_written() -> None:
    engine = SimulatedEngine(replace(SPEC, chunk_tokens=11), "one")
    engine.submit(job(0, 4, 5), 0.0)
    engine.submit(job(1, 24, 1, first_block=50), 0.55)
    # First token of 0 at 0.54; its step to 0.64 has begun. Then chunks of 10, 10 and 4 tokens beside one of its tokens.
    chunk_ends_s = [0.64 + 0.1 + 0.5 + 0.1, 1.34 + 0.1 + 0.1, 1.54 + 0.1 + 0.04]
    assert run(engine) == [
        first(0, 0.54),
        finished(0, chunk_ends_s[2]),
        first(1, chunk_ends_s[2]),
        finished(1, chunk_ends_s[2]),
    ]


def test_steps_grow_with_the_context_they_read() -> None:
    perf = replace(PERF, itl_s_per_request=0.01, itl_s_per_context_token=0.001)
    engine = SimulatedEngine(replace(SPEC, perf=perf), "one")
    engine.submit(job(0, 8, 4), 0.0)
    assert run(engine) == [first(0, 0.58), finished(0, 0.58 + 3 * 0.11 + 0.001 * (9 + 10 + 11))]


def test_the_youngest_is_preempted_when_an_answer_finds_no_block_and_is_computed_again() -> None:
    engine = SimulatedEngine(replace(SPEC, capacity_blocks=5), "one")
    engine.submit(job(0, 8, 5), 0.0)
    engine.submit(job(1, 8, 2, first_block=50), 0.1)
    # At 0.58 both fit: 2 + 2 blocks, and the fifth for the third block of 0. At 0.58 + 0.1 + 0.58 = 1.26 job 1 has its
    # first token and finds no third block: it goes, and comes back when 0 has ended, three steps later. Of its 8 + 1
    # tokens 8 are cached, and the ninth gives the second token; its base was paid before.
    assert run(engine) == [first(0, 0.58), first(1, 1.26), finished(0, 1.56), finished(1, 1.56 + 0.01)]
    assert engine.work.preemptions == 1


def test_who_does_not_fit_waits_and_nobody_overtakes() -> None:
    engine = SimulatedEngine(replace(SPEC, capacity_blocks=5), "one")
    engine.submit(job(0, 12, 2), 0.0)
    engine.submit(job(1, 12, 1, first_block=50), 0.1)
    engine.submit(job(2, 4, 1, first_block=90), 0.2)
    assert (engine.sample(0.65).running, engine.sample(0.65).waiting) == (1, 2)
    assert [event.number for event in run(engine) if isinstance(event, FirstToken)] == [0, 1, 2]


def test_blocks_of_the_host_tier_come_back_in_the_time_of_a_copy() -> None:
    spec = replace(SPEC, capacity_blocks=4, host_blocks=8, host_tokens_per_s=800.0)
    engine = SimulatedEngine(spec, "one")
    engine.submit(job(0, 12, 1), 0.0)
    engine.submit(job(1, 16, 1, first_block=50), 10.0)
    assert engine.cached_blocks(job(0, 12, 1).blocks) == 3
    engine.submit(job(2, 13, 1), 20.0)
    events = run(engine)
    assert events[-2] == first(2, 20 + 0.5 + 12 / 800 + 0.01, cached_tokens=12, host_tokens=12)
    assert engine.work.fetched_tokens == 12


def test_a_restart_drops_all_jobs_empties_the_cache_and_takes_its_time() -> None:
    engine = SimulatedEngine(replace(SPEC, start_s=30.0), "one")
    engine.submit(job(0, 8, 1), 0.0)
    engine.submit(job(1, 8, 50), 5.0)
    engine.submit(job(2, 8, 1), 5.1)
    engine.restart(5.2)
    assert engine.next_s() == pytest.approx(0.58)
    assert rounded(engine.advance(6.0)) == [first(0, 0.58), finished(0, 0.58), Dropped(1, 5.2), Dropped(2, 5.2)]
    assert (engine.next_s(), engine.cached_blocks(job(0, 8, 1).blocks)) == (inf, 0)
    assert engine.work.busy_s == pytest.approx(0.58 + 0.2)
    assert not engine.available(35.1)
    engine.submit(job(3, 8, 1), 35.1)
    assert engine.advance(35.1) == [Dropped(3, 35.1)]
    assert engine.available(35.2)
    engine.submit(job(4, 8, 1), 35.2)
    assert run(engine) == [first(4, 35.2 + 0.58), finished(4, 35.78)]


def test_a_prefill_engine_ends_a_job_with_its_first_token() -> None:
    engine = SimulatedEngine(replace(SPEC, role=Role.PREFILL), "one")
    engine.submit(job(0, 8, 100), 0.0)
    assert run(engine) == [first(0, 0.58), finished(0, 0.58)]


def test_a_decode_engine_takes_the_time_of_the_transfer_and_writes_beside_it() -> None:
    engine = SimulatedEngine(replace(SPEC, role=Role.DECODE, transfer_tokens_per_s=20.0), "one")
    engine.submit(job(0, 9, 4), 0.0)
    engine.submit(job(1, 13, 2), 0.45)
    # Eight tokens arrive in 0.4 s, the ninth is computed in the first step. Job 1 is taken up at 0.5 and has two blocks
    # in common; its other four tokens arrive at 0.7, as a step ends.
    events = run(engine)
    assert events == [first(0, 0.5), first(1, 0.8, cached_tokens=8), finished(0, 0.8), finished(1, 0.9)]
    assert engine.work.uncached_tokens == 0
    assert engine.work.transferred_tokens == 12


def test_an_aborted_job_is_not_heard_of_again_and_its_blocks_are_free_after_the_step() -> None:
    engine = SimulatedEngine(replace(SPEC, capacity_blocks=5), "one")
    engine.submit(job(0, 12, 8), 0.0)
    engine.submit(job(1, 12, 1, first_block=50), 0.1)
    engine.submit(job(2, 12, 1, first_block=70), 0.1)
    engine.abort(0, 0.65)
    engine.abort(2, 0.65)
    engine.abort(77, 0.65)
    assert engine.sample(0.65).running == 0
    assert run(engine) == [first(0, 0.62), first(1, 0.72 + 0.62), finished(1, 1.34)]
    assert engine.sample(2.0).kv_use == 0


def test_the_blocks_of_answers_count_as_used_in_the_middle_of_a_stride() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 8, 10), 0.0)
    assert [engine.sample(at_s).kv_use for at_s in (0.3, 0.6, 0.9, 1.05)] == [2 / 20, 3 / 20, 3 / 20, 4 / 20]


def test_a_job_that_could_never_fit_is_refused_at_once() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 60, 22), 1.0)
    assert engine.advance(1.0) == [Dropped(0, 1.0, too_long=True)]
    engine.submit(job(1, 60, 21), 1.0)
    assert [event.number for event in run(engine)] == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Job(1, b"", 0, 1), "at least one token"),
        (Job(1, b"", 1, 0), "at least one token"),
        (Job(1, bytes(16), 7, 1), "names more blocks"),
        (job(0, 8, 1), "is here already"),
    ],
)
def test_a_job_that_makes_no_sense_is_an_error_of_the_caller(wrong: Job, says: str) -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 8, 1), 0.0)
    with pytest.raises(ValueError, match=says):
        engine.submit(wrong, 0.0)


def test_an_engine_that_could_run_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one request"):
        SimulatedEngine(replace(SPEC, max_running=0), "one")


def test_a_stride_is_one_look_however_many_steps_it_takes() -> None:
    engine = SimulatedEngine(replace(SPEC, capacity_blocks=10_000), "one")
    engine.submit(job(0, 8, 30_000), 0.0)
    looks = count()
    while (next_s := engine.next_s()) < inf:
        next(looks)
        engine.advance(next_s)
    assert next(looks) == 2
    assert engine.work.output_tokens == 30_000


def test_the_tokens_of_an_answer_are_seen_step_by_step_without_an_event_for_each() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(job(0, 10, 4), 0.0)
    seen = [(engine.written_tokens(0, at_s), round(engine.step_end_s(at_s), 9)) for at_s in (0.1, 0.65, 0.75, 0.85)]
    assert seen == [(0, 0.6), (1, 0.7), (2, 0.8), (3, 0.9)]
    assert engine.step_end_s(1.0) == inf
    with pytest.raises(KeyError):
        engine.written_tokens(0, 1.0)


def test_a_prompt_that_is_held_stays_after_its_end_and_is_in_the_way_until_it_is_let_go() -> None:
    engine = SimulatedEngine(replace(SPEC, capacity_blocks=4), "one")
    engine.submit(replace(job(0, 12, 2), hold=True), 0.0)
    assert len(engine.advance(5.0)) == 2
    assert engine.sample(5.0).kv_use == 0.75
    engine.submit(job(1, 8, 1, first_block=50), 5.0)
    assert (engine.advance(9.0), engine.sample(9.0).waiting) == ([], 1)
    with pytest.raises(ValueError, match="here already"):
        engine.submit(job(0, 4, 1), 9.0)
    assert engine.let_go(0, 9.0)
    assert rounded(engine.advance(20.0)) == [first(1, 9.58), finished(1, 9.58)]
    assert not engine.let_go(0, 20.0)
    assert engine.sample(20.0).kv_use == 0.0


def test_what_is_aborted_or_lost_in_a_restart_holds_nothing() -> None:
    engine = SimulatedEngine(SPEC, "one")
    engine.submit(replace(job(0, 12, 9), hold=True), 0.0)
    engine.abort(0, 0.1)
    assert engine.sample(5.0).kv_use == 0.0
    engine.submit(replace(job(1, 12, 1), hold=True), 5.0)
    engine.restart(9.0)
    assert not engine.let_go(1, 9.0)


def test_a_prompt_that_comes_computed_is_transferred_at_an_engine_that_computes_others_itself() -> None:
    engine = SimulatedEngine(replace(SPEC, transfer_tokens_per_s=100.0), "one")
    engine.submit(replace(job(0, 12, 2), transferred=True), 0.0)
    assert run(engine) == [first(0, 0.11 + 0.1), finished(0, 0.31)]
    assert (engine.work.transferred_tokens, engine.work.uncached_tokens) == (11, 0)
    engine.submit(job(1, 13, 1), 10.0)
    assert run(engine) == [first(1, 10.51, cached_tokens=12), finished(1, 10.51)]


def test_a_next_turn_finds_an_answer_whose_blocks_were_named() -> None:
    engine = SimulatedEngine(SPEC, "one")
    names = struct.pack("<5Q", *range(1, 6))
    engine.submit(Job(0, names, 8, 13), 0.0)  # 8 + 12 tokens are stored: 5 blocks
    engine.submit(Job(1, names, 22, 1), 50.0)
    assert [event.cached_tokens for event in run(engine) if isinstance(event, FirstToken)] == [0, 20]
    with pytest.raises(ValueError, match="more blocks"):
        engine.submit(Job(2, names, 8, 12), 90.0)
