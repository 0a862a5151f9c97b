"""Runs small enough to be computed by hand.

An engine of `ENGINE` takes 1 s for a prompt and 1/16 s for each token of it that is not cached; a token of an answer
takes half a second, however many are written at once. So 16 tokens and an answer of 4 take 2 s and 1.5 s.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from backends import PerfModel
from backends.simulated import EngineSpec
from gateway.sim import SimRequest, View, Workload
from gateway.sim.fleet import FleetPlan, Happening
from gateway.sim.runner import Run
from prefix_index import Chain

BLOCK = 4
ENGINE = EngineSpec(
    block_size=BLOCK,
    capacity_blocks=1000,
    perf=PerfModel(base_s=1.0, prefill_tokens_per_s=16.0, quad_s_per_token2=0.0, itl_s=0.5),
)


def chain(name: str, tokens: int = 16) -> Chain:
    """A prompt of its own name; two of one name begin alike."""
    first = sum(ord(letter) << 16 for letter in name) << 16
    hashes = b"".join((first + number).to_bytes(8, "little") for number in range(tokens // BLOCK))
    return Chain(hashes, BLOCK, tokens)


def ask(number: int, at_s: float, name: str = "", *, tokens: int = 16, output: int = 4, **more: object) -> SimRequest:
    """A request; of a name of its own unless told otherwise."""
    plain = SimRequest(number, at_s, chain(name or f"own {number}", tokens), output)
    return replace(plain, **more)  # type: ignore[arg-type]  # fields of it by name


@dataclass
class Scripted:
    """Goes where it is told, the last place over and over; keeps what it was told."""

    to: Sequence[int] = (0,)
    name: str = "scripted"
    told: list[tuple[str, int, int, float]] = field(default_factory=list)
    open: Counter[int] = field(default_factory=Counter)
    chosen: int = 0

    def choose(self, request: SimRequest, view: View) -> int:
        number = self.to[min(self.chosen, len(self.to) - 1)]
        self.chosen += 1
        if not view.endpoints[number].alive:
            number = next(endpoint.number for endpoint in view.endpoints if endpoint.alive)
        return number

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        self.open[request.number] += 1
        self.told.append(("sent", request.number, endpoint, now_s))

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        self.told.append(("first", request.number, endpoint, now_s))

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        self.open[request.number] -= 1
        self.told.append(("ended", request.number, endpoint, now_s))

    def restarted(self, endpoint: int, now_s: float) -> None:
        self.told.append(("restarted", -1, endpoint, now_s))


def run(
    requests: Iterable[SimRequest],
    policy: Scripted,
    specs: Sequence[EngineSpec] = (ENGINE,),
    happenings: Sequence[Happening] = (),
    **load: object,
) -> Run:
    """Played to its end."""
    workload = Workload("by hand", BLOCK, list(requests))
    one = Run(replace(workload, **load), FleetPlan(list(specs), happenings), [policy])  # type: ignore[arg-type]  # likewise
    one.play()
    return one
