"""How fast a model ought to be on a GPU, by what is published of both, until something is measured. Pure.

    rate        prefill tokens/s = share of peak * peak * GPUs / (2 * active parameters)    one multiply-add a parameter
    attention   s per pair       = 2 * layers * heads * (width of a key + of a value) / (share * peak * GPUs)
    itl         s per token      = 2 bytes * active parameters / (0.7 * bandwidth * GPUs)   weights are read once a step

For bf16 weights. A share of 0.45 is in the middle of the 0.35 to 0.6 that long prompts reach; L4 and L40S accumulate at
half their rate, so that half of that is taken. Such figures are right to within a factor of two, and better against
each other: of two GPUs that serve one model all that is assumed alike cancels out. Of models with sliding windows only
the layers that look at everything are counted: what the others look at does not grow with the prompt.

Sources: datasheets of NVIDIA (A100, L4, L40S, H100, H200, HGX B200) and AMD (MI300X), dense; `backends.models`. What a
whole fleet of a model needs is computed, with more care, by `backends.planning`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from backends.models import CATALOGUE
from backends.perf import PerfModel

MiB: Final = 1024**2

_PEAK_SHARE: Final = 0.45
_HALF_RATE_SHARE: Final = _PEAK_SHARE / 2
BANDWIDTH_SHARE: Final = 0.7
"""Of the datasheet's bandwidth, what reading weights and KV cache reaches: 0.6 to 0.85 are seen."""
BF16_BYTES: Final = 2
BASE_S: Final = 0.02
"""HTTP, scheduling, one step."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What is published of a GPU, and the `share` of its peak that a prefill reaches.

    `flops`, `eight_bit_flops`: peak operations a second, dense, of bf16 and of the faster of FP8 and INT8.
    `bytes_per_s`: from its memory, of which `memory_bytes` are there. `link_bytes_per_s`: to another GPU of the same
    machine, one way.
    """

    flops: float
    bytes_per_s: float
    share: float
    eight_bit_flops: float
    memory_bytes: float
    link_bytes_per_s: float


_NVLINK3, _NVLINK4, _NVLINK5 = 300e9, 450e9, 900e9
"""Half of what datasheets say, which is both ways together."""
_PCIE4, _PCIE5 = 25e9, 50e9
"""Of 16 lanes, what copies reach."""
_INFINITY_FABRIC: Final = 7 * 64e9
"""Seven links."""

GPUS: Final[Mapping[str, Gpu]] = MappingProxyType(
    {
        "a100-40g": Gpu(312e12, 1.555e12, _PEAK_SHARE, 624e12, 40_536 * MiB, _NVLINK3),
        "a100-80g": Gpu(312e12, 2.039e12, _PEAK_SHARE, 624e12, 81_920 * MiB, _NVLINK3),
        "a100-80g-pcie": Gpu(312e12, 1.935e12, _PEAK_SHARE, 624e12, 81_920 * MiB, _PCIE4),
        "l4": Gpu(121e12, 0.3e12, _HALF_RATE_SHARE, 242e12, 23_034 * MiB, _PCIE4),
        "l40s": Gpu(362e12, 0.864e12, _HALF_RATE_SHARE, 733e12, 46_068 * MiB, _PCIE4),
        "h100": Gpu(989e12, 3.35e12, _PEAK_SHARE, 1979e12, 81_559 * MiB, _NVLINK4),
        "h100-pcie": Gpu(756e12, 2.0e12, _PEAK_SHARE, 1513e12, 81_559 * MiB, _PCIE5),
        "h200": Gpu(989e12, 4.8e12, _PEAK_SHARE, 1979e12, 143_771 * MiB, _NVLINK4),
        "b200": Gpu(2250e12, 7.7e12, _PEAK_SHARE, 4500e12, 183_359 * MiB, _NVLINK5),
        "mi300x": Gpu(1307e12, 5.3e12, _PEAK_SHARE, 2615e12, 196_592 * MiB, _INFINITY_FABRIC),
    }
)
"""By name; without a suffix the module for the vendor's own board. Memory is what drivers report."""

USUAL_MODEL: Final = "llama-3.1-8b"
"""What is believed to be served where nobody says: the defaults of `PerfModel` are of such a model too."""


def expected_speed(gpu: str, gpus: int = 1, model: str = USUAL_MODEL) -> PerfModel:
    """The speed of a model on so many GPUs of a kind that work as one. Raises `KeyError` for unknown names."""
    kind, of = GPUS[gpu], CATALOGUE[model]
    flops = kind.share * kind.flops * gpus
    whole_layers = sum(one.count for one in of.layers if one.window_tokens is None)
    return PerfModel(
        base_s=BASE_S,
        prefill_tokens_per_s=flops / (2 * of.active_params),
        quad_s_per_token2=whole_layers * of.pair_flops / flops,
        itl_s=BF16_BYTES * of.active_params / (BANDWIDTH_SHARE * kind.bytes_per_s * gpus),
    )
