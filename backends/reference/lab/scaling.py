"""Inputs made easier to round, with the same product: a scale moves from one matrix into what comes before it.

    (x / s) (W s)' = x W'        norm weight / s --> qkv * s          norm weight / s --> gate_up * s
                                 rows of up / s  --> down * s         attention_out: left as it is

    AWQ          few inputs are large: their weights matter most, so they are made larger before rounding, and what
                 is rounded off them counts less.  s = rms(x)^a, a from a grid of six by the error of the output
    SmoothQuant  activations are rounded too, and a few large ones spoil the scale of a whole row: half of the range
                 goes over to the weights.  s = (max|x| / max|w|)^(1/2)

(Lin et al. 2023, arXiv:2306.00978; Xiao et al. 2022, arXiv:2211.10438.) Where values serve several heads there is
nothing before `attention_out` that could take a scale for each of its inputs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from backends.reference.lab.calibration import Book, Observed
from backends.reference.lab.grids import Quantised, dequantise
from backends.reference.weights import LayerWeights, ModelWeights

_POWERS: Final = tuple(step / 5 for step in range(6))
"""0 to 1; the paper tries twenty."""
_LEAST: Final = 1e-4
"""Inputs and weights that are always 0 count as this, so that no scale is 0 or without end."""

Rounding = Callable[[Tensor], Quantised]
"""How a matrix will be rounded after it is scaled."""

Scales = Callable[[Tensor, Observed], Tensor]
"""The scale of each input of a matrix [in], from its weight and what was seen of its inputs."""


def awq(rounding: Rounding) -> Scales:
    """The power of the inputs' size after which `rounding` costs the output least; 0, no scaling, is among them."""

    def scales(weight: Tensor, seen: Observed) -> Tensor:
        size = seen.gram().diagonal().sqrt().clamp_min(_LEAST)
        candidates = [_around_one(size**power) for power in _POWERS]
        return min(candidates, key=lambda one: seen.output_error(weight - dequantise(rounding(weight * one)) / one))

    return scales


def smooth(weight: Tensor, seen: Observed) -> Tensor:
    """Half of the range of each input, in orders of magnitude, goes over to its weights."""
    ratio = seen.peaks.clamp_min(_LEAST) / weight.abs().amax(0).clamp_min(_LEAST)
    return _around_one(ratio.sqrt())


def rescaled(weights: ModelWeights, book: Book, scales: Scales) -> ModelWeights:
    """The same function with other weights: equal logits but for what float32 rounds."""
    layers = tuple(_rescaled_layer(layer, book, index, scales) for index, layer in enumerate(weights.layers))
    return replace(weights, layers=layers)


def _rescaled_layer(layer: LayerWeights, book: Book, index: int, scales: Scales) -> LayerWeights:
    for_down = scales(layer.down, book[index, "down"])
    gate, up = layer.gate_up.chunk(2)
    gate_up = torch.cat([gate, up / for_down[:, None]])
    for_gate_up = scales(gate_up, book[index, "gate_up"])
    for_qkv = scales(layer.qkv, book[index, "qkv"])
    return replace(
        layer,
        attention_norm=layer.attention_norm / for_qkv,
        qkv=layer.qkv * for_qkv,
        mlp_norm=layer.mlp_norm / for_gate_up,
        gate_up=gate_up * for_gate_up,
        down=layer.down * for_down,
    )


def _around_one(scales: Tensor) -> Tensor:
    """Scales whose largest and smallest are equally far from 1, in orders of magnitude."""
    return scales / (scales.max() * scales.min()).sqrt()
