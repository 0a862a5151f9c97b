"""Weights by the name of their form: what `--weights` of the command takes, without calibration.

What needs a text to calibrate on (`gptq`, `scaling`) is put together where there is one: `make bench-engine` shows how.
"""

from torch import Tensor

from backends.reference.lab.grids import quantise
from backends.reference.lab.matrices import Matrix, with_matrices
from backends.reference.lab.products import bfloat16, int4_weight_only, int8_weight_only, w8a8
from backends.reference.types import WeightForm
from backends.reference.weights import ModelWeights

_GROUPS = (64, 32, 16)


def recast(weights: ModelWeights, form: WeightForm) -> ModelWeights:
    """The model with the matrices of its layers in `form`; the same weights for float32."""
    if form is WeightForm.FLOAT32:
        return weights
    return with_matrices(weights, lambda _layer, _part, weight: _matrix(weight, form))


def group_of(inputs: int) -> int:
    """Inputs that share a scale at four bits: 64, or fewer where that does not fill a row, or all."""
    return next((group for group in _GROUPS if inputs % group == 0), inputs)


def _matrix(weight: Tensor, form: WeightForm) -> Matrix:
    match form:
        case WeightForm.INT4:
            return int4_weight_only(quantise(weight, 4, group=group_of(weight.shape[1])))
        case WeightForm.INT8:
            return int8_weight_only(quantise(weight, 8, symmetric=True))
        case WeightForm.W8A8:
            return w8a8(quantise(weight, 8, symmetric=True))
        case _:
            return bfloat16(weight)
