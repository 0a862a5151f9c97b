"""An index in this process: what a match and an observation cost, and a block in resident memory. Prints JSON.

python -m bench.index_in_process SUBJECT HOLDERS BLOCKS SIZE...

*radix* is our `RadixIndex`; *dynamo* the `RadixTree` of ai-dynamo-runtime, which runs in a thread of its own behind a
channel, and is told of new blocks by events in JSON, as engines would. Only the calls are timed: what they take, lists
of numbers and encoded events, is made before. In a process of its own, for the memory and since the peer lives in
another environment; so this module needs nothing but the standard library and its subject.
"""

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import count
from pathlib import Path
from statistics import fmean, quantiles
from typing import Final, Protocol

from bench.index_data import HASH_BYTES, Shape, Turn, Workload, stranger

_QUERY_ROUNDS = 5
_COLD_RUNS = 16
_TOKENS_PER_BLOCK = 16


class Subject(Protocol):
    """An index; each method gives back the call to be timed, which is ready to go."""

    def match(self, chain: bytes) -> Callable[[], Mapping[str, int]]:
        """Leading run of each holder that has one."""

    def observe(self, turn: Turn) -> Callable[[], object]:
        """The holder has all of the chain."""


class OurRadix:
    """`RadixIndex`."""

    def __init__(self) -> None:
        room = import_module("prefix_index")
        self._chain, self._index = room.Chain, room.RadixIndex()

    def match(self, chain: bytes) -> Callable[[], Mapping[str, int]]:
        """One call."""
        asked = self._as_chain(chain)

        def call() -> Mapping[str, int]:
            blocks: Mapping[str, int] = self._index.match(asked).blocks
            return blocks

        return call

    def observe(self, turn: Turn) -> Callable[[], object]:
        """One call with all of the chain."""
        told = self._as_chain(turn.chain)
        return lambda: self._index.observe(turn.holder, told)

    def _as_chain(self, hashes: bytes) -> object:
        blocks = len(hashes) // HASH_BYTES
        return self._chain(hashes=hashes, block_size=_TOKENS_PER_BLOCK, prompt_tokens=blocks * _TOKENS_PER_BLOCK)


class DynamoRadix:
    """`dynamo.llm.RadixTree`."""

    def __init__(self) -> None:
        self._tree = import_module("dynamo.llm").RadixTree()
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._events = count(1)

    def match(self, chain: bytes) -> Callable[[], Mapping[str, int]]:
        """One call, and the scores out of its answer."""
        asked = _numbers_of(chain)

        def call() -> Mapping[str, int]:
            return {self._names[worker]: run for (worker, _), run in self._tree.find_matches(asked).scores.items()}

        return call

    def observe(self, turn: Turn) -> Callable[[], object]:
        """One event with the blocks that are new."""
        number = self._numbers.setdefault(turn.holder, len(self._numbers))
        if number == len(self._names):
            self._names.append(turn.holder)
        hashes = _numbers_of(turn.chain)
        stored = {
            "parent_hash": hashes[turn.known - 1] if turn.known else None,
            "blocks": [{"block_hash": one, "tokens_hash": one} for one in hashes[turn.known :]],
        }
        event = json.dumps({"event_id": next(self._events), "data": {"stored": stored}}).encode()
        return lambda: self._tree.apply_event(number, event)


SUBJECTS: Final[Mapping[str, tuple[Callable[[], Subject], str]]] = {
    "radix": (OurRadix, "prefixgate"),
    "dynamo": (DynamoRadix, "ai-dynamo-runtime"),
}
"""How to make one, and the package whose version it has."""


def measure(subject: Subject, workload: Workload) -> dict[str, object]:
    """Load, ask, observe; figures of each size, and the answers for comparison."""
    before = _resident_bytes()
    load_s = sum(_timed(subject.observe(turn)) for turn in workload.turns())
    grown = _resident_bytes() - before
    sizes, answers = [], {}
    for size, queries in workload.queries.items():
        answers[size] = [dict(subject.match(query.chain)()) for query in queries]
        calls = [subject.match(query.chain) for query in queries]
        match_s = [_timed(call) for _ in range(_QUERY_ROUNDS) for call in calls]
        turn_s = [_timed(subject.observe(query)) for query in queries]
        cold = (Turn(workload.queries[size][0].holder, stranger(size, run), 0) for run in range(_COLD_RUNS))
        cold_s = [_timed(subject.observe(turn)) for turn in cold]
        sizes.append(
            {"size": size, "match_us": spread_us(match_s), "turn_us": spread_us(turn_s), "new_us": spread_us(cold_s)}
        )
    return {
        "load_s": round(load_s, 2),
        "stored_blocks": workload.stored_blocks,
        "resident_bytes_per_block": round(grown / workload.stored_blocks, 1),
        "sizes": sizes,
        "answers": answers,
    }


def spread_us(times_s: Sequence[float]) -> dict[str, float]:
    """Seconds in, microseconds out."""
    percentiles = quantiles(times_s, n=100, method="inclusive")
    figures = {"mean": fmean(times_s), "p50": percentiles[49], "p99": percentiles[98]}
    return {name: round(figure * 1e6, 1) for name, figure in figures.items()}


def main(arguments: Sequence[str]) -> int:
    """Measure one subject in this process."""
    name, holders, blocks, *sizes = arguments
    workload = Workload(Shape(int(holders), int(blocks), tuple(map(int, sizes))))
    make, package = SUBJECTS[name]
    print(json.dumps({"version": version(package), **measure(make(), workload)}))
    return 0


def _timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _numbers_of(chain: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(chain) // HASH_BYTES}Q", chain))


def _resident_bytes() -> int:
    """Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
