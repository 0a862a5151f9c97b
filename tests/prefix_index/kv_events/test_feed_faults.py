"""Whatever is lost, repeated, overtaken or killed: a feed that has read all claims no more than the engine holds."""

import asyncio
from dataclasses import dataclass
from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefix_index.kv_events import Cleared, Event
from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.sources import EventSource
from tests.prefix_index.kv_events.feeding import QUICK_REPLAY, Sink, fed, letters, speaking_until
from tests.prefix_index.kv_events.letters import Letters
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.prefix_index.servers import free_ports

PROMPTS = ["".join(path) for length in (1, 2, 3) for path in product("ab", repeat=length)]
FAULTS = st.sampled_from(["none", "none", "none", "lost", "twice", "late", "unreadable"])


@dataclass
class Step:
    """One batch of an engine and what becomes of it, or another life of the engine, or another connection."""

    kind: str
    path: str
    fault: str


@dataclass
class Setting:
    """How engine and feed are set up."""

    has_replay: bool
    keeps: int
    connects: bool


STEPS = st.builds(
    Step,
    kind=st.sampled_from(["store", "store", "store", "remove", "remove", "clear", "restart", "hang up"]),
    path=st.sampled_from(PROMPTS),
    fault=FAULTS,
)
SETTINGS = st.builds(Setting, has_replay=st.booleans(), keeps=st.sampled_from([1, 3, 10_000]), connects=st.booleans())


@given(setting=SETTINGS, steps=st.lists(STEPS, max_size=14), pauses=st.integers(0, 2))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_after_any_faults_the_index_claims_no_more_than_the_engine_holds(
    setting: Setting, steps: list[Step], pauses: int
) -> None:
    with asyncio.Runner() as runner:
        runner.run(play(setting, steps, pauses))


async def play(setting: Setting, steps: list[Step], pauses: int) -> None:
    live, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    replay_url = replay if setting.has_replay else None
    source, sink = EventSource(live, replay_url, bind=setting.connects), Sink()
    engine = letters()
    publisher = Publisher(live, replay_url, connects=setting.connects, keeps=setting.keeps)
    async with publishing(publisher), fed(source, sink, options=QUICK_REPLAY) as feed:
        await publisher.subscribed()
        late: list[int] = []
        for step in steps:
            if step.kind == "restart":
                late.clear()
                engine.clear()
                await publisher.restart()
                await publisher.subscribed()
            elif step.kind == "hang up":
                if setting.connects:
                    publisher.hang_up()
                    await publisher.subscribed()
            else:
                late = send(publisher, events_of(engine, step), step.fault, late)
            for _ in range(pauses):
                await asyncio.sleep(0)
        await speaking_until(
            publisher,
            lambda: engine.store("z", 0),
            lambda: sink.run_of("z") == 1 and feed.expected_sequence == publisher.next_sequence and feed.is_idle,
        )
        for prompt in PROMPTS:
            held = engine.run_of(prompt, 0)
            assert sink.run_of(prompt) <= held, prompt
            if feed.state is FeedState.IN_STEP:
                assert sink.run_of(prompt) == held, prompt


def events_of(engine: Letters, step: Step) -> list[Event]:
    if step.kind == "clear":
        engine.clear()
        return [Cleared()]
    if step.kind == "remove":
        return [engine.remove(step.path)] if step.path in engine.held else []
    known = next((end for end in range(len(step.path) - 1, 0, -1) if step.path[:end] in engine.held), 0)
    return [engine.store(step.path, known)]


def send(publisher: Publisher, events: list[Event], fault: str, late: list[int]) -> list[int]:
    """Publish a batch; returns the numbers of those that are still on their way."""
    sequence = publisher.next_sequence
    publisher.publish(
        *events,
        lost=fault in {"lost", "late"},
        payload=b"\xc1 no msgpack" if fault == "unreadable" else None,
    )
    if fault == "twice":
        publisher.send_again(sequence)
    if fault == "late":
        return [*late, sequence]
    for overtaken in late:
        publisher.send_again(overtaken)
    return []
