"""Table A: hit ratios that others counted on the same traces, counted again, so that the rest can be believed.

One pool or N workers, each with a least-recently-used cache of blocks, in the order of the file, without time. The
published tables touch the blocks of a chat from its first to its last, and those of a coding agent from the last to the
first, which is what engines do (`WholeCache`): evicted from the head, what is left of a chain is of no use.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from random import Random
from typing import Final, Protocol

from backends.simulated import EngineSpec
from backends.simulated.kv_cache import names_of
from bench.result import Goal
from bench.routing_fleets import MILLION, chat_as_filed, coding, synthetic_as_filed
from bench.routing_types import EVENNESS, HITS, Column, Figure, Outcomes, Scenario, Table
from gateway.sim.cache_only import UNLIMITED, WholeCache
from gateway.sim.fleet import FleetPlan
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

REFERENCE: Final = "reference"
REFERENCE_WORK: Final = "reference_work"
TENTH_OF_A_POINT: Final = 0.001
BLOCK: Final = {"conversation": 512, "synthetic": 512, "coding": 64}
LOADS: Final[Mapping[str, Callable[[int], Workload]]] = {
    "conversation": chat_as_filed,
    "synthetic": synthetic_as_filed,
    "coding": coding,
}
POOL: Final = "one pool"

POOLS: Final[Mapping[tuple[str, float], float]] = {
    ("conversation", 1): 0.0542,
    ("conversation", 3): 0.1382,
    ("conversation", 10): 0.2908,
    ("conversation", 30): 0.3658,
    ("conversation", 50): 0.3707,
    ("conversation", 0): 0.3736,
    ("synthetic", 1): 0.1421,
    ("synthetic", 3): 0.3151,
    ("synthetic", 10): 0.5768,
    ("synthetic", 30): 0.6512,
    ("synthetic", 50): 0.6512,
    ("synthetic", 0): 0.6512,
    ("coding", 0): 0.953,
}
"""Millions of tokens (0: no limit), and the hits."""

Known = tuple[float, float | None]
WORKERS: Final[Mapping[tuple[str, int, float], Mapping[str, Known]]] = {
    ("conversation", 8, 0.3): {"random": (0.050, None), "rr": (0.050, None), "longest": (0.043, None)},
    ("conversation", 8, 1): {"random": (0.075, None), "rr": (0.080, None), "longest": (0.054, None)},
    ("conversation", 10, 3): {"random": (0.103, None), "rr": (0.106, None), "longest": (0.138, None)},
    ("synthetic", 8, 0.3): {"random": (0.039, None), "rr": (0.044, None), "longest": (0.253, None)},
    ("synthetic", 8, 1): {"random": (0.103, None), "rr": (0.108, None), "longest": (0.533, None)},
    ("synthetic", 10, 3): {"random": (0.169, None), "rr": (0.171, None), "longest": (0.651, None)},
    ("coding", 8, 0.3): {
        "random": (0.170, 1.06),
        "rr": (0.192, 1.02),
        "sticky": (0.676, 1.62),
        "longest": (0.716, 1.31),
    },
    ("coding", 8, 1): {
        "random": (0.394, 1.08),
        "rr": (0.411, 1.04),
        "sticky": (0.925, 2.08),
        "longest": (0.924, 1.50),
    },
    ("coding", 8, 3): {
        "random": (0.607, 1.14),
        "rr": (0.610, 1.04),
        "sticky": (0.952, 1.25),
        "longest": (0.953, 1.10),
    },
}
"""Workers and millions of tokens each: hits, and the largest share of the work over the mean."""


class Cache(Protocol):
    """What a worker keeps."""

    def cached_blocks(self, chain: Chain) -> int:
        """The leading run that is here."""
        ...

    def use(self, chain: Chain) -> int:
        """The leading run that is here, in tokens; all of the chain is here afterwards."""
        ...


@dataclass(slots=True)
class HeadFirst:
    """Each block of its own, a request's first block evicted before its last. O(blocks)."""

    capacity_blocks: int
    blocks: OrderedDict[int, None]

    @classmethod
    def of(cls, capacity_blocks: int) -> "HeadFirst":
        """An empty one."""
        return cls(capacity_blocks, OrderedDict())

    def cached_blocks(self, chain: Chain) -> int:
        """The leading run that is here."""
        return sum(1 for _ in takewhile(self.blocks.__contains__, names_of(chain.hashes)))

    def use(self, chain: Chain) -> int:
        """As `Cache` says."""
        run, blocks = self.cached_blocks(chain), self.blocks
        for name in names_of(chain.hashes):
            blocks[name] = None
            blocks.move_to_end(name)
            if len(blocks) > self.capacity_blocks:
                blocks.popitem(last=False)
        return min(run * chain.block_size, chain.prompt_tokens)


class Workers:
    """So many caches, and who gets a request: the rules of the published tables, which know caches and work alone."""

    def __init__(self, caches: Sequence[Cache], policy: str, seed: int) -> None:
        self.caches = caches
        self.work = [0] * len(caches)
        self.prompts = [0] * len(caches)
        self._policy = policy
        self._rng = Random(seed)
        self._sent = 0
        self._homes: dict[str, int] = {}

    def send(self, request: SimRequest) -> int:
        """Send it; returns its cached tokens."""
        worker = self._chosen(request)
        cached_tokens = self.caches[worker].use(request.chain)
        self.prompts[worker] += request.prompt_tokens
        self.work[worker] += request.prompt_tokens - cached_tokens
        self._sent += 1
        return cached_tokens

    def _chosen(self, request: SimRequest) -> int:
        count = len(self.caches)
        if self._policy == "random":
            return self._rng.randrange(count)
        if self._policy == "sticky":
            return self._homes.setdefault(request.session, len(self._homes)) % count
        if self._policy == "longest":
            return min(range(count), key=lambda n: (-self.caches[n].cached_blocks(request.chain), self.prompts[n]))
        return self._sent % count


def counted(trace: str, known: Mapping[str, Known], scenario: Scenario, policy: str, seed: int) -> dict[Figure, float]:
    """One line of the table."""
    capacity = scenario.plan.specs[0].capacity_blocks
    kind = WholeCache if trace == "coding" else HeadFirst
    workers = Workers([kind.of(capacity) for _ in scenario.plan.specs], policy, seed)
    prompt = cached = 0
    for request in scenario.load(seed).requests:
        prompt += request.prompt_tokens
        cached += workers.send(request)
    hits, work = known[policy]
    figures = {"hit_share": cached / prompt, REFERENCE: hits}
    if work is not None:
        figures |= {"imbalance": max(workers.work) * len(workers.work) / sum(workers.work), REFERENCE_WORK: work}
    return figures


def reference(full: bool) -> Table:
    """A. The short run leaves out coding agents' middle and largest caches, which take longest."""
    scenarios = [
        _scenario(trace, 1, size, f"{trace}, one pool of {f'{size:g} M' if size else 'any size'}", {POOL: (hits, None)})
        for (trace, size), hits in POOLS.items()
    ]
    scenarios += [
        _scenario(trace, count, size, f"{trace}, {count} × {size:g} M", known)
        for (trace, count, size), known in WORKERS.items()
        if full or (trace, size) not in (("coding", 0.3), ("coding", 3))
    ]
    columns = (
        HITS,
        Column("published %", REFERENCE, 1, 100),
        EVENNESS,
        Column("published max/mean", REFERENCE_WORK),
    )
    return Table("A", "Known hit ratios, counted again", TEXT, scenarios, _goals, columns, flat=True)


TEXT: Final = """
Nothing of ours is in this table: it holds the caches and the readers of traces against what others counted for the
same files (least recently used, in the order of the file, no time). `longest` is the worker with the longest cached
prefix, ties to the one that was sent the fewest tokens. On the conversation trace it loses to dice: all prompts share
a first block, so one worker gets everything.
"""


def _scenario(trace: str, count: int, millions: float, name: str, known: Mapping[str, Known]) -> Scenario:
    block = BLOCK[trace]
    blocks = int(millions * MILLION) // block if millions else UNLIMITED
    plan = FleetPlan.of(count, EngineSpec(block_size=block, capacity_blocks=blocks))
    player = partial(counted, trace, known)
    return Scenario(name, LOADS[trace], plan, tuple(known), timed=False, ceilings=False, player=player)


def _goals(outcomes: Outcomes) -> list[Goal]:
    """Equal to a tenth of a point; dice within two standard deviations of theirs and ours."""
    goals = []
    for scenario, policy in outcomes.runs():
        hits = outcomes.sample(scenario, policy, "hit_share")
        off = abs(hits.mean - outcomes.sample(scenario, policy, REFERENCE).mean)
        # What was published is rounded to half of the last digit, and itself one throw of the dice.
        leeway = TENTH_OF_A_POINT + 2 * hits.deviation
        goals.append(Goal(f"A: {scenario}, {policy}: off by", round(off, 6), round(leeway, 6), "<="))
    return goals
