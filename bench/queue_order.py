"""What the order of a queue keeps of caches, what that costs those who wait, and what waiting costs a processor.

    200 requests wait, another comes for each that goes     4 endpoints, each keeps 6 of 40 beginnings of prompts
        of 8 tenants, some beginnings 100 times as often        a turn: one endpoint at random has room

The order is the server's own (`gateway.queueing`), and so is the gate whose calls are timed. What a cache holds is a
list of the latest beginnings; nothing takes time but our own code, whose processor time is measured apart.
"""

import random
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from statistics import mean
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client import CollectorRegistry

from backends import EndpointFacts, EndpointId, EndpointSnapshot, InFlight
from bench.result import Goal, write_result
from gateway.queue_metrics import QueueMetrics
from gateway.queueing import ClassRule, Order, OrderRules, Ticket
from gateway.queueing.fullness import Bound
from gateway.queueing.gate import Gate, GateParts, GateRules
from gateway.queueing.places import Bounds, Places
from prefix_index import SharedIndex

BLOCK: Final = 16
SHARED_BLOCKS, OWN_BLOCKS = 100, 20
BEGINNINGS, TENANTS, WAITING, TURNS, KEPT = 40, 8, 200, 2000, 6
ENDPOINTS: Final = ("e0", "e1", "e2", "e3")
SEEDS: Final = range(3)
ONE_CLASS: Final = (ClassRule("all", 1e9, 1 << 30, 1 << 60, 0.05),)
ORDERS: Final = ((0, 0), (1, 8192), (4, 8192), (16, 8192), (4, 32768))
_US: Final = 1e6


def main() -> int:
    """Play each order, time the calls, write the result."""
    rows = [order_row(*rules) for rules in ORDERS]
    rows += [turn_row(tenants) for tenants in (10, 100, 1000)]
    rows.append(request_row())
    for row in rows:
        print(row)
    in_order, usual = rows[0], rows[2]
    goals = [
        Goal("share of beginnings found, less that in strict order", usual["found"] - in_order["found"], 0.1, ">="),
        Goal(
            "99th percentile of waits over that in strict order", usual["p99_turns"] / in_order["p99_turns"], 1.1, "<="
        ),
        Goal("processor time of a request while nothing is full, us", rows[-1]["request_us"], 2.0, "<="),
    ]
    for goal in goals:
        print(goal.text())
    write_result("queue_order", rows, goals, ())
    return 0


def order_row(most_passed: int, quantum: int) -> dict[str, Any]:
    """Hits and waits under one order, means over seeds."""
    played = [_play(OrderRules(ONE_CLASS, {}, quantum, most_passed), random.Random(seed)) for seed in SEEDS]
    found, median, late, longest = (round(mean(figures), 3) for figures in zip(*played, strict=True))
    waits = {"median_turns": median, "p99_turns": late, "longest_turns": longest}
    return {"most_passed": most_passed, "quantum_tokens": quantum, "found": found, **waits}


def _play(rules: OrderRules, rng: random.Random) -> tuple[float, int, int, int]:
    """Share of the prompts whose beginning was where they went; waits in turns: median, 99th percentile, longest."""
    chains = [rng.randbytes(8 * SHARED_BLOCKS) for _ in range(BEGINNINGS)]
    caches: dict[str, OrderedDict[int, None]] = {name: OrderedDict() for name in ENDPOINTS}
    order, came, waits, found = Order(rules), dict[Ticket, tuple[int, int]](), list[int](), 0

    def come(turn: int) -> None:
        which = int(rng.paretovariate(0.6)) % BEGINNINGS
        prompt_tokens = (SHARED_BLOCKS + OWN_BLOCKS) * BLOCK
        ticket = Ticket(
            f"t{which % TENANTS}",
            0,
            prompt_tokens,
            frozenset(ENDPOINTS),
            {name: SHARED_BLOCKS * BLOCK for name in ENDPOINTS if which in caches[name]},
            output_tokens=64,
            hashes=chains[which] + rng.randbytes(8 * OWN_BLOCKS),
            block_size=BLOCK,
        )
        came[ticket] = turn, which
        order.put(ticket)

    for _ in range(WAITING):
        come(0)
    for turn in range(TURNS):
        name = rng.choice(ENDPOINTS)
        pick = order.next_for(name)
        assert pick is not None
        at, which = came.pop(pick.ticket)
        waits.append(turn - at)
        found += which in caches[name]
        caches[name][which] = None
        caches[name].move_to_end(which)
        if len(caches[name]) > KEPT:
            caches[name].popitem(last=False)
        come(turn)
    waits.sort()
    return found / TURNS, waits[TURNS // 2], waits[TURNS * 99 // 100], waits[-1]


def turn_row(tenants: int) -> dict[str, Any]:
    """Processor time of one turn while a thousand requests wait, and of foretelling how long another would."""
    order, everywhere = Order(OrderRules(ONE_CLASS)), frozenset(ENDPOINTS)
    for number in range(1000):
        order.put(Ticket(f"t{number % tenants}", 0, 1000, everywhere))
    mine = Ticket("t0", 0, 1000, everywhere)

    def turn() -> None:
        pick = order.next_for("e0")
        assert pick is not None
        order.put(pick.ticket)

    return {
        "tenants": tenants,
        "turn_us": round(_cpu_us(turn, 300), 1),
        "foretell_us": round(_cpu_us(lambda: order.ahead_of(mine), 300), 1),
    }


def request_row() -> dict[str, Any]:
    """Processor time that the gate takes of a request while nothing is full: a look, and three changes of its load."""
    snapshot = tuple(
        EndpointSnapshot(EndpointId(name), healthy=True, generation=1, facts=EndpointFacts("vllm"))
        for name in ENDPOINTS
    )
    load = InFlight(3, 1000, 1000)
    registry: Any = SimpleNamespace(snapshot=lambda: snapshot, load_of=lambda _: load)
    index = SharedIndex(None, pool="bench", replica="bench")
    bounds = Bounds({name: Bound(64) for name in ENDPOINTS}, Bound())
    places = Places(bounds, registry, index.others, time.monotonic)
    parts = GateParts(places, QueueMetrics(CollectorRegistry()), time.monotonic)
    gate = Gate(GateRules(OrderRules(ONE_CLASS)), parts)

    def request() -> None:
        gate.is_crowded()
        for _ in range(3):
            gate.load_changed("e0", load)

    return {"request_us": round(_cpu_us(request, 20_000), 2)}


def _cpu_us(work: Callable[[], object], calls: int) -> float:
    """The least of five samples, each of many calls."""
    samples = []
    for _ in range(5):
        began_s = time.process_time()
        for _ in range(calls):
            work()
        samples.append((time.process_time() - began_s) / calls)
    return min(samples) * _US


if __name__ == "__main__":
    sys.exit(main())
