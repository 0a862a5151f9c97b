"""Weights by the name of their form: what `--weights` of the command takes, without calibration.

What needs a text to calibrate on (`gptq`, `scaling`) is put together where there is one: `make bench-engine` shows how.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from torch import Tensor

from backends.reference.lab.grids import quantise
from backends.reference.lab.matrices import Matrix, with_matrices
from backends.reference.lab.products import bfloat16, int4_weight_only, int8_weight_only, w8a8
from backends.reference.types import WeightForm
from backends.reference.weights import ModelWeights

_GROUPS: Final = (64, 32, 16)
"""The largest first: it takes the fewest scales."""


def recast(weights: ModelWeights, form: WeightForm) -> ModelWeights:
    """The model with the matrices of its layers in `form`; the same weights for float32."""
    if form is WeightForm.FLOAT32:
        return weights
    made = _MADE[form]
    return with_matrices(weights, lambda _layer, _part, weight: made(weight))


def group_of(inputs: int) -> int:
    """Inputs that share a scale at four bits: 64, or fewer where that does not fill a row, or all."""
    return next((group for group in _GROUPS if inputs % group == 0), inputs)


_MADE: Final[Mapping[WeightForm, Callable[[Tensor], Matrix]]] = MappingProxyType(
    {
        WeightForm.BFLOAT16: bfloat16,
        WeightForm.INT8: lambda weight: int8_weight_only(quantise(weight, 8, symmetric=True)),
        WeightForm.INT4: lambda weight: int4_weight_only(quantise(weight, 4, group=group_of(weight.shape[1]))),
        WeightForm.W8A8: lambda weight: w8a8(quantise(weight, 8, symmetric=True)),
    }
)
