"""Products with matrices of fewer bits: as torch's own kernels on a CPU, else written out.

    bfloat16   x in 16 bits, W in 16 bits           half the bytes, nothing else
    INT8       x in 16 bits, W in 8 bits            one scale a row             weight-only
    INT4       x in 16 bits, W in 4 bits            a scale and an offset a group of inputs
    W8A8       x in 8 bits,  W in 8 bits            a scale a row of each; the sums are exact integers

Decoding reads every weight for every token, so fewer bytes are more tokens a second, as long as turning codes into
numbers costs less than reading them did. Tests hold each product to what it is when it is written out,
`F.linear(x, dequantise(W))`: for INT4 with scales in 16 bits, for W8A8 with the rounded x.

The kernels of whole numbers are not public in torch. They take some sizes only, and those of INT8 and W8A8 do not
refuse the others; what they do not take is written out here. A torch without them is refused with the first matrix.
"""

from collections.abc import Callable
from typing import Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.errors import KernelMissing
from backends.reference.lab.grids import Quantised, dequantise
from backends.reference.lab.matrices import Matrix

_INT8_INPUTS: Final = 16
"""The INT8 kernel sums so many at a time and looks for no rest: it would read what lies behind a row."""
_INT4_GROUPS: Final = (32, 64, 128, 256)
_INT4_OUTPUTS: Final = 64
"""The INT4 kernel takes groups of these sizes, and multiples of so many outputs."""
_HIGHEST_NIBBLE: Final = 15
_NIBBLE_MIDDLE: Final = 8


def bfloat16(weight: Tensor) -> Matrix:
    """The weight [out, in] in 16 bits; x is rounded to as many."""
    short = weight.bfloat16()
    return Matrix(lambda x: F.linear(x.bfloat16(), short).float(), short.nbytes)


def written_out(matrix: Quantised) -> Matrix:
    """Weights from codes anew in every product: what the kernels are held to, and slow."""
    grid = matrix.grid
    size = matrix.codes.numel() * matrix.bits // 8 + grid.scales.nbytes + grid.offsets.nbytes
    return Matrix(lambda x: F.linear(x, dequantise(matrix)), size)


def int8_weight_only(matrix: Quantised) -> Matrix:
    """Eight bits a weight, one symmetric scale a row, in 16 bits. ValueError for another grid."""
    _check_rows(matrix)
    if matrix.codes.device.type != "cpu" or matrix.codes.shape[1] % _INT8_INPUTS:
        return written_out(matrix)
    codes, scales = matrix.codes.contiguous(), matrix.grid.scales[:, 0].bfloat16()
    kernel = _kernel("_weight_int8pack_mm")
    return Matrix(lambda x: kernel(x.bfloat16(), codes, scales).float(), codes.nbytes + scales.nbytes)


def int4_weight_only(matrix: Quantised) -> Matrix:
    """Four bits a weight, two a byte, with a scale and an offset a group, in 16 bits each.

    ValueError for a symmetric grid, or one of more bits.
    """
    if matrix.grid.lowest != 0 or matrix.grid.highest > _HIGHEST_NIBBLE:
        raise ValueError("products in four bits need codes from 0 to 15")
    outputs = matrix.codes.shape[0]
    fits = matrix.group in _INT4_GROUPS and outputs % _INT4_OUTPUTS == 0
    if matrix.codes.device.type != "cpu" or not fits:
        return written_out(matrix)
    group, grid = matrix.group, matrix.grid
    kernel = _kernel("_weight_int4pack_mm_for_cpu")
    packed = _kernel("_convert_weight_to_int4pack_for_cpu")(matrix.codes.int(), 1)
    # The kernel's code 8 is its zero: what stands for code 0 here is eight scales further down.
    middles = grid.offsets + _NIBBLE_MIDDLE * grid.scales
    grids = torch.stack([grid.scales, middles], dim=-1).transpose(0, 1).contiguous().bfloat16()
    return Matrix(lambda x: kernel(x.bfloat16(), packed, group, grids).float(), packed.nbytes + grids.nbytes)


def w8a8(matrix: Quantised) -> Matrix:
    """Both sides in eight bits: each row of x is rounded by its own largest value, as it comes. ValueError as above."""
    _check_rows(matrix)
    codes, scales = matrix.codes.contiguous(), matrix.grid.scales[:, 0]
    product = _whole_numbers(codes)

    def times(x: Tensor) -> Tensor:
        rows, row_scales = rounded_rows(x)
        return product(rows).float() * row_scales * scales

    return Matrix(times, codes.nbytes + scales.nbytes)


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [t, in] as int8 with one symmetric scale a row [t, 1]."""
    row_scales = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return (x / row_scales).round_().to(torch.int8), row_scales


def _whole_numbers(codes: Tensor) -> Callable[[Tensor], Tensor]:
    """int8 rows [t, in] times codes [out, in], summed exactly: in int32 on a CPU, in float64 elsewhere, where kernels
    want other sizes, and for a single input, of which the kernel of CPUs makes something else."""
    columns = codes.t()
    if codes.device.type != "cpu" or codes.shape[1] == 1:
        return lambda rows: rows.double() @ columns.double()
    kernel = _kernel("_int_mm")
    return lambda rows: kernel(rows, columns)


def _kernel(name: str) -> Callable[..., Tensor]:
    """An operator of torch by name. Raises `KernelMissing`."""
    found = getattr(torch, name, None)
    if found is None:
        raise KernelMissing(name, torch.__version__)
    return cast("Callable[..., Tensor]", found)


def _check_rows(matrix: Quantised) -> None:
    if matrix.grid.scales.shape[1] != 1 or bool(matrix.grid.offsets.any()):
        raise ValueError("products in eight bits need one symmetric scale a row")
