"""Quantisation to a uniform grid, group by group, and back.

    a row of W   [ w w w w | w w w w | ... ]        a group has one scale and one offset
    codes        [ 0 9 15 3 | 7 1 12 15 | ... ]     w ~ scale * code + offset

A symmetric grid has offset 0 and codes from -(2^(bits-1) - 1) up; an asymmetric one spans from the least to the
greatest weight of the group with codes from 0 up. A group is a stretch of `group` inputs of one output row; by default
the whole row.

Bound: each weight lies within its group's range, so rounding to the nearest code is off by half a scale at most, and by
what float32 itself rounds. Bytes: bits / 8 a weight, and two numbers a group.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the codes of some groups lie: [..., groups] each; codes from `lowest` to `highest`."""

    scales: Tensor
    offsets: Tensor
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix [out, in] as codes, a byte each whatever their bits, with the grid of each group."""

    codes: Tensor
    grid: Grid
    bits: int

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.codes.shape[1] // self.grid.scales.shape[1]


def fit(groups: Tensor, bits: int, *, symmetric: bool) -> Grid:
    """The grid of each group, weights [..., group]; a group of equal weights is represented exactly. ValueError for
    weights that are no numbers, or so far apart that their difference is none."""
    if symmetric:
        highest = 2 ** (bits - 1) - 1
        scales = groups.abs().amax(-1) / highest
        return Grid(_steps(scales), torch.zeros_like(scales), -highest, highest)
    least, most = groups.aminmax(dim=-1)
    highest = 2**bits - 1
    return Grid(_steps((most - least) / highest), least, 0, highest)


def to_codes(groups: Tensor, grid: Grid) -> Tensor:
    """The nearest codes of weights [..., groups, group], as float."""
    codes = (groups - grid.offsets[..., None]) / grid.scales[..., None]
    return codes.round_().clamp_(grid.lowest, grid.highest)


def from_codes(codes: Tensor, grid: Grid) -> Tensor:
    """The weights that codes [..., groups, group] stand for."""
    return codes * grid.scales[..., None] + grid.offsets[..., None]


def quantise(weight: Tensor, bits: int, *, group: int | None = None, symmetric: bool = False) -> Quantised:
    """Round a matrix [out, in] to the nearest codes. ValueError where groups of `group` do not fill its rows."""
    outputs, inputs = weight.shape
    group = group or inputs
    if inputs % group:
        raise ValueError(f"{inputs} inputs are no groups of {group}")
    groups = weight.view(outputs, -1, group)
    grid = fit(groups, bits, symmetric=symmetric)
    return Quantised(to_codes(groups, grid).to(torch.int8 if symmetric else torch.uint8).flatten(1), grid, bits)


def dequantise(matrix: Quantised) -> Tensor:
    """The matrix [out, in], float32."""
    return from_codes(grouped(matrix), matrix.grid).flatten(1)


def grouped(matrix: Quantised) -> Tensor:
    """The codes as float, [out, groups, group]."""
    return matrix.codes.float().view(len(matrix.codes), -1, matrix.group)


def _steps(scales: Tensor) -> Tensor:
    if not torch.isfinite(scales).all():
        raise ValueError("weights that are NaN, infinite, or too far apart cannot be rounded to a grid")
    return torch.where(scales > 0, scales, 1.0)
