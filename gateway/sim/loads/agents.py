"""Recorded agents: requests of one loop of tool calls after another, with the ids of their blocks run-length coded.

Files with times are read as they are. In a file without times the requests of a conversation stand together, and the
conversations are laid side by side: one begins each `every_s`, its turns are `turn_s` apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gateway.sim.loads.flat import ROWS, UNIQUE, FlatTrace, Row
from gateway.sim.loads.lines import rows_of
from gateway.sim.loads.merging import Conversation, Draft, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload

AGENT_BLOCK_TOKENS = 16
DEFAULT_EVERY_S = 10.0
DEFAULT_TURN_S = 5.0


@dataclass(frozen=True, slots=True)
class UntimedTrace:
    """Conversations without times, laid out in time; seconds. Memory for the conversations that run."""

    rows: FlatTrace
    every_s: float
    turn_s: float

    def __iter__(self) -> Iterator[SimRequest]:
        """O(blocks), and O(log conversations) a request. Raises WorkloadInvalid as FlatTrace does."""
        return in_order_of_time(self._conversations())

    def _conversations(self) -> Iterator[Conversation]:
        unique = Names(UNIQUE)
        rows = rows_of(self.rows.path, ROWS)
        for index, (_, turns) in enumerate(groupby(rows, lambda line: line[1].session_id)):
            yield self._conversation(list(turns), index * self.every_s, unique)

    def _conversation(self, turns: list[tuple[int, Row]], start_s: float, unique: Names) -> Conversation:
        before: int | None = None
        for turn, (line, row) in enumerate(turns):
            chain = self.rows.chain(line, row, unique)
            at_s, think_s = start_s + turn * self.turn_s, 0.0 if before is None else self.turn_s
            before = yield Draft(at_s, chain, row.output_length, row.session_id, "", before, think_s)


def agents(
    path: Path,
    *,
    block_size: int = AGENT_BLOCK_TOKENS,
    partial_blocks: bool = False,
    every_s: float = DEFAULT_EVERY_S,
    turn_s: float = DEFAULT_TURN_S,
) -> Workload:
    """The trace of a file; `every_s` and `turn_s` are for files without times, and otherwise not used.

    `after` is the request before in the same session, `think_s` the time from its beginning, where recorded, as nobody
    wrote down when answers ended. Raises WorkloadInvalid at once for the first line, and later while iterating.
    """
    require(block_size > 0, "a block has at least one token")
    require(every_s >= 0 and turn_s >= 0, "conversations and turns follow each other in time")
    rows = FlatTrace(path, block_size, partial_blocks)
    _, first = next(rows_of(path, ROWS))
    timed = first.timestamp is not None
    return Workload(path.name.split(".")[0], block_size, rows if timed else UntimedTrace(rows, every_s, turn_s))
