"""Traces that know times and lengths and nothing of prompts: Azure's hours. Every prompt is unlike all others."""

from pathlib import Path

from gateway.sim.loads.flat import FlatTrace
from gateway.sim.loads.names import require
from gateway.sim.types import Workload


def azure(path: Path, *, block_size: int = 16) -> Workload:
    """The trace of a file with `timestamp`, `input_length`, `output_length`: no two prompts share a block.

    `block_size` in tokens is the reader's choice. Raises WorkloadInvalid while iterating.
    """
    require(block_size > 0, "a block has at least one token")
    return Workload(path.name.split(".")[0], block_size, FlatTrace(path, block_size))
