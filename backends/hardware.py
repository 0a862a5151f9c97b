"""How fast a model ought to be on a GPU, by what is published of both, until something is measured. Pure.

    rate        prefill tokens/s = share of peak * peak * GPUs / (2 * active parameters)    one multiply-add a parameter
    attention   s per pair       = 4 * layers * heads * head size / (share * peak * GPUs)
    itl         s per token      = 2 bytes * active parameters / (0.7 * bandwidth * GPUs)   weights are read once a step

For bf16 weights. A share of 0.45 is in the middle of the 0.35 to 0.6 that long prompts reach; L4 and L40S accumulate at
half their rate, so that half of that is taken. Such figures are right to within a factor of two, and better against
each other: of two GPUs that serve one model all that is assumed alike cancels out.

Sources: datasheets of NVIDIA (A100, L4, L40S, H100, H200, HGX B200) and AMD (MI300X), dense bf16; configurations that
the models were published with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from backends.perf import PerfModel

_PEAK_SHARE: Final = 0.45
_HALF_RATE_SHARE: Final = _PEAK_SHARE / 2
_BANDWIDTH_SHARE: Final = 0.7
_BF16_BYTES: Final = 2
BASE_S: Final = 0.02
"""HTTP, scheduling, one step."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak floating-point operations a second (dense bf16), bytes a second from its memory, and the share of the peak
    that a prefill reaches."""

    flops: float
    bytes_per_s: float
    share: float = _PEAK_SHARE


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model its speed depends on; `active_params` are those that a token goes through."""

    active_params: float
    layers: int
    heads: int
    head_size: int

    @property
    def pair_flops(self) -> float:
        """Of attention, for a new token and one that it looks at: a product for the score, one for the sum."""
        return 4.0 * self.layers * self.heads * self.head_size


GPUS: Final[Mapping[str, Gpu]] = MappingProxyType(
    {
        "a100-40g": Gpu(312e12, 1.555e12),
        "a100-80g": Gpu(312e12, 2.039e12),
        "a100-80g-pcie": Gpu(312e12, 1.935e12),
        "l4": Gpu(121e12, 0.3e12, _HALF_RATE_SHARE),
        "l40s": Gpu(362e12, 0.864e12, _HALF_RATE_SHARE),
        "h100": Gpu(989e12, 3.35e12),
        "h100-pcie": Gpu(756e12, 2.0e12),
        "h200": Gpu(989e12, 4.8e12),
        "b200": Gpu(2250e12, 7.7e12),
        "mi300x": Gpu(1307e12, 5.3e12),
    }
)
"""By name; without a suffix the module for the vendor's own board."""

MODEL_SHAPES: Final[Mapping[str, ModelShape]] = MappingProxyType(
    {
        "smollm2-135m": ModelShape(0.135e9, 30, 9, 64),
        "llama-3.1-8b": ModelShape(8.03e9, 32, 32, 128),
        "llama-3.1-70b": ModelShape(70.6e9, 80, 64, 128),
        "llama-3.1-405b": ModelShape(405.9e9, 126, 128, 128),
        "qwen2.5-7b": ModelShape(7.62e9, 28, 28, 128),
        "qwen2.5-72b": ModelShape(72.7e9, 80, 64, 128),
        "qwen3-8b": ModelShape(8.2e9, 36, 32, 128),
        "qwen3-32b": ModelShape(32.8e9, 64, 64, 128),
        "qwen3-235b-a22b": ModelShape(22e9, 94, 64, 128),
        "mixtral-8x7b": ModelShape(12.9e9, 32, 32, 128),
        "gpt-oss-20b": ModelShape(3.6e9, 12, 64, 64),
        "gpt-oss-120b": ModelShape(5.1e9, 18, 64, 64),
    }
)
"""By name. Of models with sliding windows only the layers that look at everything are counted: what the others look at
does not grow with the prompt."""

USUAL_MODEL: Final = "llama-3.1-8b"
"""What is believed to be served where nobody says: the defaults of `PerfModel` are of such a model too."""


def expected_speed(gpu: str, gpus: int = 1, model: str = USUAL_MODEL) -> PerfModel:
    """The speed of a model on so many GPUs of a kind that work as one. Raises `KeyError` for unknown names."""
    kind, shape = GPUS[gpu], MODEL_SHAPES[model]
    flops = kind.share * kind.flops * gpus
    return PerfModel(
        base_s=BASE_S,
        prefill_tokens_per_s=flops / (2 * shape.active_params),
        quad_s_per_token2=shape.pair_flops / flops,
        itl_s=_BF16_BYTES * shape.active_params / (_BANDWIDTH_SHARE * kind.bytes_per_s * gpus),
    )
