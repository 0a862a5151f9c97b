"""Calibrated rounding: what one weight is rounded off by, the weights after it make good.

    W   [ done | j | not yet ]       round column j, then move what it was off by, weighed by how inputs go together,
          fixed  ^   ---------->     into the columns that are still free

The rule of optimal brain surgery in GPTQ's order, all rows at once and columns from left to right (Frantar et al.
2022, arXiv:2210.17323): with U the upper Cholesky factor of the inverse of the damped Gram matrix, a column j that is
off by e is made good by subtracting (e / U[j, j]) U[j, k] from each column k > j. The grid of a group is fitted to its
weights as they stand when the group begins; columns of later groups are brought up to date a group at a time, by one
product.

Here the inputs are those of the plain model; the paper takes them from the model as far as it is quantised already.
Costs O(out * in^2) a matrix and O(in^3) for the inverse.
"""

import torch
from torch import Tensor

from backends.reference.lab.calibration import Observed
from backends.reference.lab.grids import Grid, Quantised, fit, from_codes, to_codes

DAMPING = 0.01
"""Of the mean diagonal, added to the Gram matrix: the paper's, so that the inverse exists."""


def gptq(weight: Tensor, inputs: Observed, bits: int, group: int) -> Quantised:
    """Round a matrix [out, in] on an asymmetric grid. ValueError where groups of `group` do not fill its rows."""
    if weight.shape[1] % group:
        raise ValueError(f"{weight.shape[1]} inputs are no groups of {group}")
    factor = _factor(inputs.gram())
    left = weight.clone()
    codes = torch.empty_like(weight, dtype=torch.uint8)
    grids: list[Grid] = []
    for begin in range(0, weight.shape[1], group):
        inside = slice(begin, begin + group)
        grid = fit(left[:, inside], bits, symmetric=False)
        off = _round_group(left[:, inside], codes[:, inside], grid, factor[inside, inside])
        left[:, begin + group :] -= off @ factor[inside, begin + group :]
        grids.append(grid)
    scales = torch.stack([grid.scales for grid in grids], dim=1)
    offsets = torch.stack([grid.offsets for grid in grids], dim=1)
    return Quantised(codes, Grid(scales, offsets, grids[0].lowest, grids[0].highest), bits)


def _round_group(left: Tensor, codes: Tensor, grid: Grid, factor: Tensor) -> Tensor:
    """Round the columns of one group in order; fills `codes`, changes `left`, gives what later groups make good."""
    off = torch.empty_like(left)
    for column in range(left.shape[1]):
        now = left[:, column, None]
        rounded = to_codes(now, grid)
        codes[:, column] = rounded[:, 0].to(torch.uint8)
        off[:, column] = (now - from_codes(rounded, grid))[:, 0] / factor[column, column]
        left[:, column + 1 :] -= off[:, column, None] * factor[column, column + 1 :]
    return off


def _factor(gram: Tensor) -> Tensor:
    """U with U'U the inverse of the damped Gram matrix, upper triangular; inputs that are always 0 count as 1."""
    diagonal = gram.diagonal()
    damped = gram + torch.diag(torch.where(diagonal == 0, 1.0, 0.0) + DAMPING * diagonal.mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped.double()))
    factor: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor.float()
