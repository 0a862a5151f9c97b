"""How two engines share a request: three families, each as data and pure functions.

nixl.py        vLLM           one after the other, blocks are pulled by opaque params
bootstrap.py   SGLang         both at once, they meet in a room
trtllm.py      TensorRT-LLM   one after the other, the first token comes from the first
"""

from collections.abc import Mapping
from typing import Final

from backends.disaggregated.bootstrap import BOOTSTRAP
from backends.disaggregated.nixl import NIXL, REFERENCE
from backends.disaggregated.trtllm import CONTEXT_FIRST
from backends.disaggregated.types import DecodeReport, Edit, Handed, Handover, Meeting, Role

_BY_ENGINE: Final[Mapping[str, Handover]] = {
    "vllm": NIXL,
    "sglang": BOOTSTRAP,
    "trtllm": CONTEXT_FIRST,
    "reference": REFERENCE,
}


def handover_of(engine: str) -> Handover | None:
    """The way of an engine, by the name of its dialect; None where it has none."""
    return _BY_ENGINE.get(engine)


__all__ = ["DecodeReport", "Edit", "Handed", "Handover", "Meeting", "Role", "handover_of"]
