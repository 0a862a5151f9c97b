"""The engine that leaps over steps does what one that takes each of them does."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from backends.perf import PerfModel
from backends.simulated import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job, Role, SimulatedEngine
from tests.backends.simulated import naive

# All seconds are sums of powers of two, so that both engines compute them exactly and ties are ties in both.
PERFS = [
    PerfModel(1 / 64, 4096.0, 0.0, 1 / 64, 0.0, 0.0),
    PerfModel(1 / 64, 4096.0, 2.0**-24, 1 / 64, 2.0**-10, 2.0**-14),
    PerfModel(0.0, 1024.0, 0.0, 1 / 128, 0.0, 2.0**-9),
]


Told = tuple[str, int, float, tuple[int, ...]]


@dataclass(frozen=True)
class Act:
    """What happens `after_s` the act before: a job of so many blocks of family `head`, or an abort.

    `named`: the answer's blocks go on with the family's, so that longer prompts of it find them.
    """

    after_s: float
    head: int
    shared: int
    own: int
    rest: int
    output_tokens: int
    aborts: int | None
    named: bool = False


acts = st.builds(
    Act,
    after_s=st.one_of(st.just(0.0), st.integers(0, 200).map(lambda n: n / 512), st.integers(0, 20).map(float)),
    head=st.integers(0, 2),
    shared=st.integers(0, 6),
    own=st.integers(0, 3),
    rest=st.integers(0, 3),
    output_tokens=st.one_of(st.integers(1, 5), st.integers(1, 60)),
    aborts=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 30)),
    named=st.booleans(),
)
specs = st.builds(
    EngineSpec,
    block_size=st.just(4),
    capacity_blocks=st.sampled_from([8, 14, 24, 60]),
    perf=st.sampled_from(PERFS),
    chunk_tokens=st.sampled_from([3, 8, 32, 512]),
    max_running=st.sampled_from([1, 3, 100]),
    host_blocks=st.sampled_from([0, 0, 5, 40]),
    host_tokens_per_s=st.just(8192.0),
    transfer_tokens_per_s=st.sampled_from([256.0, 65536.0]),
    role=st.sampled_from([Role.BOTH, Role.BOTH, Role.PREFILL, Role.DECODE]),
)


def job_of(number: int, act: Act) -> Job:
    names = [1000 * act.head + i for i in range(1, act.shared + 1)]
    names += [10**6 * (number + 1) + i for i in range(act.own)]
    prompt_tokens = max(1, 4 * len(names) + act.rest)
    if act.named and not act.own:
        stored_blocks = (prompt_tokens + act.output_tokens - 1) // 4
        names += [1000 * act.head + i for i in range(act.shared + 1, stored_blocks + 1)]
    return Job(number, struct.pack(f"<{len(names)}Q", *names), prompt_tokens, act.output_tokens)


def told(event: EngineEvent) -> Told:
    match event:
        case FirstToken(number, at_s, cached, host):
            return ("first", number, at_s, (cached, host))
        case Finished(number, at_s):
            return ("finished", number, at_s, ())
        case Dropped(number, at_s):
            return ("dropped", number, at_s, ())


def in_order(events: Iterable[Told]) -> list[Told]:
    """By time; what happens at the same time by request."""
    return sorted(events, key=lambda event: (event[2], event[1], event[0] == "finished"))


def play(spec: EngineSpec, load: list[Act], wake: bool) -> None:
    engine, oracle = SimulatedEngine(spec, "one"), naive.NaiveEngine(spec)
    events: list[EngineEvent] = []
    now_s = 0.0
    for number, act in enumerate(load):
        now_s += act.after_s
        while wake and (next_s := engine.next_s()) <= now_s:
            events += engine.advance(next_s)
        for target in (engine, oracle):
            if act.aborts is None:
                target.submit(job_of(number, act), now_s)
            else:
                target.abort(act.aborts, now_s)
        oracle.run(now_s)
        sample = engine.sample(now_s)
        alive = [one for one in oracle.running if not one.aborted]
        assert (sample.running, sample.waiting) == (len(alive), sum(not one.aborted for one in oracle.waiting))
        assert sample.kv_use == oracle.cache.held / spec.capacity_blocks
        assert (sample.prefix_queries, sample.prefix_hits) == (oracle.queries, oracle.hits)
    while (next_s := engine.next_s()) < inf:
        events += engine.advance(next_s)
    oracle.run(inf)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert in_order(told(event) for event in events) == in_order(oracle.events)
    assert (engine.work.preemptions, engine.work.uncached_tokens) == (oracle.preemptions, oracle.uncached)
    for head in range(3):
        chain = [1000 * head + i for i in range(1, 7)]
        assert engine.cached_blocks(struct.pack("<6Q", *chain)) == sum(oracle.cache.found(chain))
    assert engine.sample(1e9).kv_use == 0


@given(spec=specs, load=st.lists(acts, max_size=30), wake=st.booleans())
def test_leaping_and_stepping_give_the_same_events_at_the_same_times(
    spec: EngineSpec, load: list[Act], wake: bool
) -> None:
    play(spec, load, wake)
