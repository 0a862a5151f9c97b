"""Traces with one request a line: the form of Mooncake, of Azure's hours, and of recorded agents.

    {"timestamp": 27482, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ...]}

`timestamp` is in milliseconds from the start; lengths are tokens. `hash_ids` has one id a block of the prompt, or
`runs` has them as `[first, count, first, count, ...]`, or there are none and every prompt is unlike all others. Equal
ids mean equal blocks **and** equal blocks before them, so ids are used as names as they are.

The last id of a prompt may stand for a block that is not full. No engine reuses such a block and no gateway hashes it,
so it is dropped; published tables of hit ratios count it, and `partial_blocks` keeps it for comparison with those.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.sim.loads.errors import WorkloadInvalid
from gateway.sim.loads.lines import rows_of
from gateway.sim.loads.names import Names, names_of_runs, pack
from gateway.sim.types import SimRequest
from prefix_index import HASH_BYTES, Chain

Count = Annotated[int, msgspec.Meta(ge=0)]
Span = Annotated[float, msgspec.Meta(ge=0)]

MILLISECONDS = 1e-3
UNIQUE = 1 << 63
"""The first name for prompts without ids: beyond the ids of any trace."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One line. `session_id`, and `delay` in milliseconds after the end of the session's request before, are extras."""

    input_length: Count
    output_length: Count
    timestamp: Span | None = None
    hash_ids: list[Count] | None = None
    runs: list[Count] | None = None
    session_id: str = ""
    delay: Span | None = None


ROWS = msgspec.json.Decoder(Row)


@dataclass(frozen=True, slots=True)
class FlatTrace:
    """A file of rows with times, and how to read it. Iterating reads the file once.

    Raises WorkloadInvalid while iterating: a list of ids that does not fit its length, times that are missing or go
    backwards. Sorting is left to whoever made the file: it would take all of it in memory.
    """

    path: Path
    block_size: int
    partial_blocks: bool = False

    def __iter__(self) -> Iterator[SimRequest]:
        """O(blocks); keeps the last request of each session, nothing else."""
        unique = Names(UNIQUE)
        last: dict[str, tuple[int, float]] = {}
        now_s = 0.0
        for number, (line, row) in enumerate(rows_of(self.path, ROWS)):
            if row.timestamp is None:
                raise WorkloadInvalid(self.path, line, "has no timestamp")
            at_s = row.timestamp * MILLISECONDS
            if at_s < now_s:
                raise WorkloadInvalid(self.path, line, f"goes back in time, to {at_s:g} s from {now_s:g} s: sort it")
            now_s = at_s
            after, think_s = None, 0.0
            if row.session_id in last:
                after, before_s = last[row.session_id]
                think_s = at_s - before_s if row.delay is None else row.delay * MILLISECONDS
            if row.session_id:
                last[row.session_id] = (number, at_s)
            chain = self.chain(line, row, unique)
            yield SimRequest(number, at_s, chain, row.output_length, row.session_id, "", after, think_s)

    def chain(self, line: int, row: Row, unique: Names) -> Chain:
        """The chain of a row, out of `unique` where it names no blocks. Raises WorkloadInvalid for ids of no use."""
        whole = row.input_length // self.block_size
        partial = -(-row.input_length // self.block_size)
        if row.hash_ids is None and row.runs is None:
            names = unique.fresh(partial)
        else:
            names = self._names(line, row)
            if (count := len(names) // HASH_BYTES) not in (whole, partial):
                shape = f"{count} ids for {row.input_length} tokens"
                raise WorkloadInvalid(
                    self.path, line, f"has {shape}: blocks of {self.block_size} tokens would be {partial}"
                )
        if not self.partial_blocks:
            names = names[: whole * HASH_BYTES]
        return Chain(names, self.block_size, row.input_length)

    def _names(self, line: int, row: Row) -> bytes:
        try:
            return pack(row.hash_ids) if row.hash_ids is not None else names_of_runs(row.runs or [])
        except OverflowError as e:
            raise WorkloadInvalid(self.path, line, "an id does not fit 8 bytes") from e
        except ValueError as e:
            raise WorkloadInvalid(self.path, line, "`runs` wants pairs of first and count") from e
