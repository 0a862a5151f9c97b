"""What serves: a model in so many bits on so many GPUs that work as one, and what of their datasheets is reached. Pure.

Tensor parallel: each of the GPUs has its part of every matrix and of the KV heads, and after each of a layer's two
blocks they add up what they have:

    carried by one GPU   2 · (g − 1) / g · tokens · hidden · 2 bytes        an all-reduce as a ring does it

Bits. 16: bf16. 8: weights and activations, at the rate of FP8 or INT8. 4: weights alone, in groups that share a scale,
made wide again before they are multiplied, so that arithmetic is as slow as at 16; a KV cache of 4 bits is kept so too.
Embeddings and norms often stay wide in practice; they are not told apart here.
"""

from dataclasses import dataclass
from typing import Final, Literal

from backends.hardware import BANDWIDTH_SHARE, BF16_BYTES, Gpu
from backends.models import Latent, Model

__all__ = ["Bits", "Machine", "bytes_of"]

Bits = Literal[16, 8, 4]

_GROUP: Final = 128
_SCALE_BITS: Final = 32
"""A scale and a zero point of 16 bits for each group, as GPTQ and AWQ keep them by default."""
_WIDTH_BITS: Final[dict[int, float]] = {16: 16.0, 8: 8.0, 4: 4 + _SCALE_BITS / _GROUP}

_UTILISATION: Final = 0.9
"""Of the memory, what an engine takes: the default of vLLM."""
_WORKSPACE_BYTES: Final = 2e9
"""Assumed for a GPU: activations of a step, graphs, libraries."""
_ALL_REDUCE_S: Final = 10e-6
"""Assumed: what an all-reduce takes that carries nothing."""


def bytes_of(bits: Bits) -> float:
    """Bytes of a number, its part of the scales included."""
    return _WIDTH_BITS[bits] / 8


@dataclass(frozen=True, slots=True)
class Machine:
    """`model` on `gpus` of a kind. `flops_share` and `bandwidth_share`: what of the datasheet is reached, in a prefill
    and in reading; None: as usual for the GPU. A fit to measured endpoints gives others."""

    model: Model
    gpu: Gpu
    gpus: int = 1
    weight_bits: Bits = 16
    kv_bits: Bits = 16
    flops_share: float | None = None
    bandwidth_share: float = BANDWIDTH_SHARE

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError("gpus must be 1 or more")

    @property
    def flops_per_s(self) -> float:
        """Operations a second that a prefill reaches on all GPUs."""
        peak = self.gpu.eight_bit_flops if self.weight_bits == 8 else self.gpu.flops
        share = self.gpu.share if self.flops_share is None else self.flops_share
        return peak * share * self.gpus

    @property
    def bytes_per_s(self) -> float:
        """Read from memory by all GPUs together."""
        return self.gpu.bytes_per_s * self.bandwidth_share * self.gpus

    @property
    def room_bytes(self) -> float:
        """Memory of all GPUs that an engine may use, less what a step needs for itself."""
        return self.gpus * (self.gpu.memory_bytes * _UTILISATION - _WORKSPACE_BYTES)

    @property
    def weight_bytes(self) -> float:
        """Of all parameters."""
        return self.model.params * bytes_of(self.weight_bits)

    @property
    def kv_copies(self) -> float:
        """How often a token's KV cache is kept: more than once where there are more GPUs than KV heads. What is latent
        has no heads to divide by, so every GPU keeps all of it."""
        if isinstance(self.model.cached, Latent):
            return float(self.gpus)
        return max(1.0, self.gpus / self.model.cached.kv_heads)

    def kv_bytes(self, tokens: int) -> float:
        """Of the KV cache of one sequence of so many tokens, all copies."""
        return self.model.numbers_kept(tokens) * bytes_of(self.kv_bits) * self.kv_copies

    @property
    def all_reduces(self) -> int:
        """Of a step: after both blocks of each layer."""
        return 2 * self.model.layer_count

    def all_reduce_s(self, tokens: float) -> float:
        """Seconds of a step over so many tokens that GPUs spend adding up; 0 for one GPU."""
        if self.gpus == 1:
            return 0.0
        carried_bytes = 2 * (self.gpus - 1) / self.gpus * tokens * self.model.hidden * BF16_BYTES
        return self.all_reduces * (_ALL_REDUCE_S + carried_bytes / self.gpu.link_bytes_per_s)
