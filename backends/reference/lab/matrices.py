"""A weight that knows how to multiply: in the place of a tensor, so that the decoder needs no branch for it.

    F.linear(x, weight)      torch asks a `weight` that is no tensor, by `__torch_function__`   -->   weight.times(x)

So a model whose matrices are quantised or observed is a `ModelWeights` like any other, and the engine, its scheduler
and its server run it as it is. Only products with `F.linear` exist; all else raises TypeError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, cast

import torch.nn.functional as F
from torch import Tensor

from backends.reference.weights import LayerWeights, ModelWeights

PARTS: Final = ("qkv", "attention_out", "gate_up", "down")
"""The matrices of a layer, in the order in which a token meets them; embedding and head stay as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Stands for a weight [out, in]: `times` maps x [t, in] to [t, out]; `size_bytes` is what it takes in memory."""

    times: Callable[[Tensor], Tensor]
    size_bytes: int

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """What torch calls where a `Matrix` is given as a tensor."""
        if function is not F.linear or kwargs or len(args) != 2:
            return NotImplemented
        x, matrix = args
        assert isinstance(x, Tensor)
        assert isinstance(matrix, Matrix)
        return matrix.times(x)


def with_matrices(weights: ModelWeights, make: Callable[[int, str, Tensor], Matrix]) -> ModelWeights:
    """The model with each matrix of its layers replaced: `make` gets the layer's index, the part and the weight."""

    def layer(index: int, one: LayerWeights) -> LayerWeights:
        made = {part: cast("Tensor", make(index, part, getattr(one, part))) for part in PARTS}
        return replace(one, **made)

    return replace(weights, layers=tuple(layer(index, one) for index, one in enumerate(weights.layers)))


def layer_bytes(weights: ModelWeights) -> int:
    """Memory of all layers, norms included; embedding and head are not counted, since no technique changes them."""

    def size(one: object) -> int:
        return one.size_bytes if isinstance(one, Matrix) else cast("Tensor", one).nbytes

    return sum(size(getattr(layer, part.name)) for layer in weights.layers for part in fields(LayerWeights))
