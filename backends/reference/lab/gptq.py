"""Calibrated rounding: what one weight is rounded off by, the weights after it make good.

    W   [ done | j | not yet ]       round column j, then move what it was off by, weighed by how inputs go together,
          fixed  ^   ---------->     into the columns that are still free

The rule of optimal brain surgery in GPTQ's form, all rows at once (Frantar et al. 2022, arXiv:2210.17323): with U the
upper Cholesky factor of the inverse of the damped Gram matrix, a column j that is off by e is made good by subtracting
(e / U[j, j]) U[j, k] from each column k > j. The largest inputs come first, while much is free to make good for them.
The grid of a group is fitted before to its weights as they are. Columns further on are brought up to date a stretch at
a time, by one product.

Here the inputs are those of the plain model; the paper takes them from the model as far as it is quantised already.
The fewer rows were observed, the more a solution fits to them alone: `DAMPING` holds against that. The paper's 0.01,
made for 128 times as many tokens as were tried with it here (2,048), was worse than rounding to the nearest on a text
that was not observed.
Costs O(out * in^2) a matrix and O(in^3) for the inverse.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from backends.reference.lab.calibration import Observed
from backends.reference.lab.grids import Grid, Quantised, fit, from_codes, to_codes

DAMPING: Final = 0.5
"""Of the mean diagonal, added to the Gram matrix."""

_STRETCH: Final = 64
"""Columns between two large products; no outcome depends on it."""


def gptq(weight: Tensor, inputs: Observed, bits: int, group: int) -> Quantised:
    """Round a matrix [out, in] on an asymmetric grid. ValueError where groups of `group` do not fill its rows."""
    if weight.shape[1] % group:
        raise ValueError(f"{weight.shape[1]} inputs are no groups of {group}")
    gram = inputs.gram()
    order = gram.diagonal().argsort(descending=True)
    factor = _factor(gram[order][:, order])
    grid = fit(weight.view(len(weight), -1, group), bits, symmetric=False)
    own = _of_columns(grid, order // group)
    left = weight[:, order]
    codes = torch.empty_like(left)
    for begin in range(0, len(order), _STRETCH):
        inside = slice(begin, begin + _STRETCH)
        off = _round_stretch(left[:, inside], codes[:, inside], own[begin : begin + _STRETCH], factor[inside, inside])
        left[:, begin + _STRETCH :] -= off @ factor[inside, begin + _STRETCH :]
    return Quantised(codes[:, order.argsort()].to(torch.uint8), grid, bits)


def _of_columns(grid: Grid, groups: Tensor) -> list[Grid]:
    """The grid of each column, that of its group."""
    return [Grid(grid.scales[:, one], grid.offsets[:, one], grid.lowest, grid.highest) for one in groups.tolist()]


def _round_stretch(left: Tensor, codes: Tensor, own: Sequence[Grid], factor: Tensor) -> Tensor:
    """Round the columns of a stretch in order; fills `codes`, changes `left`, gives what later ones make good."""
    off = torch.empty_like(left)
    for column, grid in enumerate(own):
        now = left[:, column]
        rounded = to_codes(now[:, None], grid)
        codes[:, column] = rounded[:, 0]
        off[:, column] = (now - from_codes(rounded, grid)[:, 0]) / factor[column, column]
        left[:, column + 1 :] -= off[:, column, None] * factor[column, column + 1 :]
    return off


def _factor(gram: Tensor) -> Tensor:
    """U with U'U the inverse of the damped Gram matrix, upper triangular; inputs that are always 0 count as 1."""
    diagonal = gram.diagonal()
    damped = gram + torch.diag(torch.where(diagonal == 0, 1.0, 0.0) + DAMPING * diagonal.mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped.double()))
    factor: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor.float()
