"""A closed loop on a simulated engine under a virtual clock: what its clients see, and how much it serves."""

from collections.abc import Sequence
from itertools import count

from backends.perf import PerfModel
from backends.simulated import EngineSpec, SimulatedEngine
from backends.simulated.types import FirstToken, Job
from gateway.measuring.types import Seen, Window

NO_BLOCKS = b""


def closed_loop(
    perf: PerfModel,
    clients: int,
    lengths: tuple[int, int],
    answers: int = 8,
    *,
    max_running: int = 256,
) -> tuple[list[Seen], float]:
    """`answers` rounds of so many clients; returns what they saw and when the last of them was served."""
    prompt, output = lengths
    spec = EngineSpec(perf=perf, capacity_blocks=1_000_000, max_running=max_running)
    engine = SimulatedEngine(spec, "e")
    numbers = count()
    asked: dict[int, float] = {}
    first: dict[int, float] = {}
    seen: list[Seen] = []

    def ask(at_s: float) -> None:
        number = next(numbers)
        asked[number] = at_s
        engine.submit(Job(number, NO_BLOCKS, prompt, output), at_s)

    for _ in range(clients):
        ask(0.0)
    now_s = 0.0
    while len(seen) < answers * clients:
        now_s = engine.next_s()
        for event in engine.advance(now_s):
            if isinstance(event, FirstToken):
                first[event.number] = event.at_s
                continue
            seen.append(saw(asked[event.number], first[event.number], event.at_s, lengths, perf))
            ask(event.at_s)
    return seen, now_s


def saw(asked_s: float, first_s: float, end_s: float, lengths: tuple[int, int], perf: PerfModel) -> Seen:
    return Seen(
        asked_s=asked_s,
        first_s=first_s - asked_s,
        decode_s=end_s - first_s,
        ended_s=end_s,
        is_whole=True,
        prompt_tokens=lengths[0],
        cached_tokens=0,
        output_tokens=lengths[1],
        prefill_s=perf.prefill_s(lengths[0], lengths[0]),
    )


def window_of(seen: Sequence[Seen], end_s: float, clients: int) -> Window:
    """All but the first fifth of the time."""
    return Window(end_s / 5, end_s, seen, clients=clients)
