"""What the inputs of each matrix look like over some text: what calibrated quantisation weighs errors by.

    error of an output, squared, on average  =  e G e'      e = a row of (W - rounded W),  G = X'X / t

So the Gram matrix G [in, in] of the inputs says all that the squared error needs, and no input has to be kept. Observed
in one run of the plain model, matrix by matrix, by weights that look at what they are multiplied with.

Memory: in * in * 4 bytes a matrix, 400 MB for SmolLM2-135M. Time: that of a prefill, and as much again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.lab.matrices import Matrix, with_matrices
from backends.reference.weights import ModelWeights


@dataclass(slots=True)
class Observed:
    """Inputs of one matrix: the sum of their products [in, in], the largest of each by amount [in], how many rows."""

    inputs: int
    products: Tensor = field(init=False, repr=False)
    peaks: Tensor = field(init=False, repr=False)
    rows: int = 0

    def __post_init__(self) -> None:
        self.products = torch.zeros(self.inputs, self.inputs)
        self.peaks = torch.zeros(self.inputs)

    def see(self, x: Tensor) -> None:
        """Add the rows of x [t, in]."""
        if self.rows == 0:
            self.products, self.peaks = self.products.to(x.device), self.peaks.to(x.device)
        self.products += x.T @ x
        self.peaks = torch.maximum(self.peaks, x.abs().amax(0))
        self.rows += len(x)

    def gram(self) -> Tensor:
        """Mean products [in, in]."""
        return self.products / max(self.rows, 1)

    def output_error(self, difference: Tensor) -> float:
        """Mean squared error of all outputs together, for weights that are off by `difference` [out, in]."""
        return float(((difference @ self.gram()) * difference).sum())


Book = dict[tuple[int, str], Observed]
"""By layer and part."""


def observe(weights: ModelWeights, windows: Sequence[Sequence[int]]) -> Book:
    """Run the plain model over each of `windows`, from an empty cache, and look at every matrix's inputs."""
    book: Book = {}

    def looking(layer: int, part: str, weight: Tensor) -> Matrix:
        seen = book.setdefault((layer, part), Observed(weight.shape[1]))

        def times(x: Tensor) -> Tensor:
            seen.see(x)
            return F.linear(x, weight)

        return Matrix(times, weight.nbytes)

    longest = max(len(window) for window in windows)
    decoder = PagedDecoder(with_matrices(weights, looking), kv_blocks=1, block_size=longest, max_positions=longest)
    for window in windows:
        decoder.forward([Chunk(window, 0, (0,), wants_logits=False)])
    return book
