"""The Llama decoder over a paged KV cache.

    tokens of this step, all requests flattened     [ a5 a6 a7 | b12 | c0 c1 c2 c3 ]
                                                       chunk    decode    chunk
    per layer   keys, values of these tokens  --scatter-->  physical blocks (block table of each request)
                all keys, values of a request <--gather---  its blocks, in order, cut at its length
    last row of each request that is complete --head--> logits

Everything but attention is computed for all tokens of the step at once. Attention runs per request: its block table is
gathered into contiguous keys and values, so what a query sees has gone through the cache, hit or computed. That is what
makes a cache hit a fact here: the skipped tokens run through no layer.

Invariants: a request's slice starts where its computed tokens end; its table covers the slice; no two requests of a
step write to one block (full blocks are shared, and nobody writes to a full block again, except with equal values).

Costs a step, float32: 2 × weights FLOP a token; attention 4 × layers × heads × head_dim FLOP a (query, key) pair; the
gather copies a request's whole KV once a step, which for a 2,400-token SmolLM2 context is a fifth of the weight bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.errors import CacheTooLarge
from backends.reference.layers import attend, causal_mask, mlp, norm, rotary_tables, rotate
from backends.reference.weights import LayerWeights, ModelWeights


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one request to run through the model: `tokens` at positions `start`, `start` + 1, ...

    `blocks` is the request's block table from position 0; it covers the chunk. `wants_logits`: whether the last token
    of the chunk is the last one known, so that the next can be sampled. `tail`: of how many of its last tokens the
    logits are wanted then.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    wants_logits: bool
    tail: int = 1


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where one chunk lies: rows of the flattened step, length of its context, gather indices, mask."""

    rows: slice
    end: int
    blocks: Tensor
    mask: Tensor | None


def wanted_rows(chunks: Sequence[Chunk]) -> list[int]:
    """Which rows of a step's tokens, flattened, logits are wanted of, in order."""
    rows: list[int] = []
    end = 0
    for chunk in chunks:
        end += len(chunk.tokens)
        if chunk.wants_logits:
            rows += range(end - chunk.tail, end)
    return rows


class PagedDecoder:
    """One model with its own KV cache; not thread-safe, `forward` mutates the cache. Raises `CacheTooLarge`."""

    def __init__(self, weights: ModelWeights, *, kv_blocks: int, block_size: int, max_positions: int) -> None:
        shape = weights.shape
        self._weights = weights
        self._shape = shape
        self._block_size = block_size
        self._device = weights.embedding.device
        # Not zeroed: nothing is read that was not written, and blocks never used take no memory.
        kv_shape = (shape.layers, 2, kv_blocks, block_size, shape.kv_heads, shape.head_dim)
        try:
            self._kv = torch.empty(kv_shape, device=self._device)
        except RuntimeError:
            raise CacheTooLarge(math.prod(kv_shape) * torch.float32.itemsize) from None
        cos, sin = rotary_tables(max_positions, shape.head_dim, shape.rope_theta)
        self._cos, self._sin = cos.to(self._device), sin.to(self._device)

    @property
    def kv(self) -> Tensor:
        """Keys and values by block [layers, 2, blocks, block size, kv heads, head dim]; unwritten is anything."""
        return self._kv

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run the chunks; logits [n, vocab] for the last `tail` tokens of the chunks with `wants_logits`, in order."""
        tokens = torch.tensor([token for chunk in chunks for token in chunk.tokens], device=self._device)
        positions = torch.cat([self._positions(chunk) for chunk in chunks])
        slots = torch.cat([self._slots(chunk) for chunk in chunks])
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        placed = self._place(chunks)

        hidden = F.embedding(tokens, self._weights.embedding)
        for index, layer in enumerate(self._weights.layers):
            hidden += self._attention(self._norm(hidden, layer.attention_norm), layer, index, (cos, sin, slots), placed)
            hidden += mlp(self._norm(hidden, layer.mlp_norm), layer)
        return F.linear(self._norm(hidden[wanted_rows(chunks)], self._weights.final_norm), self._weights.head)

    def _attention(
        self, x: Tensor, layer: LayerWeights, index: int, where: tuple[Tensor, Tensor, Tensor], placed: list[_Placed]
    ) -> Tensor:
        shape = self._shape
        cos, sin, slots = where
        qkv = F.linear(x, layer.qkv).view(len(x), -1, shape.head_dim)
        queries = rotate(qkv[:, : shape.heads], cos, sin)
        keys = rotate(qkv[:, shape.heads : shape.heads + shape.kv_heads], cos, sin)
        values = qkv[:, shape.heads + shape.kv_heads :]
        cached_keys, cached_values = self._kv[index]
        cached_keys.flatten(0, 1).index_copy_(0, slots, keys)
        cached_values.flatten(0, 1).index_copy_(0, slots, values)

        out = torch.empty_like(queries)
        for place in placed:
            all_keys = cached_keys.index_select(0, place.blocks).flatten(0, 1)[: place.end]
            all_values = cached_values.index_select(0, place.blocks).flatten(0, 1)[: place.end]
            out[place.rows] = attend(queries[place.rows], all_keys, all_values, place.mask)
        return F.linear(out.flatten(1), layer.attention_out)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return norm(x, weight, self._shape.rms_norm_eps)

    def _slots(self, chunk: Chunk) -> Tensor:
        """Rows of the cache, blocks flattened, where the chunk's keys and values go."""
        positions = self._positions(chunk)
        blocks = torch.tensor(chunk.blocks, device=self._device)[positions // self._block_size]
        return blocks * self._block_size + positions % self._block_size

    def _positions(self, chunk: Chunk) -> Tensor:
        return torch.arange(chunk.start, chunk.start + len(chunk.tokens), device=self._device)

    def _place(self, chunks: Sequence[Chunk]) -> list[_Placed]:
        placed: list[_Placed] = []
        row = 0
        for chunk in chunks:
            count = len(chunk.tokens)
            end = chunk.start + count
            used_blocks = -(-end // self._block_size)
            mask = causal_mask(count, end, self._device) if count > 1 else None
            blocks = torch.tensor(chunk.blocks[:used_blocks], device=self._device)
            placed.append(_Placed(slice(row, row + count), end, blocks, mask))
            row += count
        return placed
