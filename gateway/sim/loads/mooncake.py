"""Mooncake's traces, and all that were published in the same form."""

from pathlib import Path

from gateway.sim.loads.flat import FlatTrace
from gateway.sim.loads.names import require
from gateway.sim.types import Workload

MOONCAKE_BLOCK_TOKENS = 512


def mooncake(path: Path, *, block_size: int = MOONCAKE_BLOCK_TOKENS, partial_blocks: bool = False) -> Workload:
    """The trace of a file, JSON Lines or gzip of it; read anew each time the requests are iterated.

    `block_size` is the file's own, in tokens. `partial_blocks` keeps the id of a last block that is not full, as the
    published tables of hit ratios do. Raises WorkloadInvalid while iterating.
    """
    require(block_size > 0, "a block has at least one token")
    return Workload(path.name.split(".")[0], block_size, FlatTrace(path, block_size, partial_blocks))
