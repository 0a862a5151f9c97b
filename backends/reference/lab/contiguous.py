"""The same decoder over a KV cache without blocks: one stretch of memory a request, as long as any request may get.

    slot 0  [ a a a a a . . . . . . . ]        keys and values of a request lie side by side: read where they are,
    slot 1  [ b b . . . . . . . . . . ]        without a gather; what is reserved and never written is waste
    slot 2  [ c c c c c c c c c . . . ]

The counterpart that paging is held against: tests show that both give the same logits for any block table, the bench
what each wastes. Nothing is shared between slots, so a prefix is computed for every request anew.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.decoder import Chunk, wanted_rows
from backends.reference.layers import attend, causal_mask, mlp, norm, rotary_tables, rotate
from backends.reference.weights import LayerWeights, ModelWeights


class ContiguousDecoder:
    """Like `PagedDecoder`, but `blocks` of a chunk is one number, its slot: one of `slots` stretches of `max_positions`
    tokens. Not thread-safe, `forward` mutates the cache."""

    def __init__(self, weights: ModelWeights, *, slots: int, max_positions: int) -> None:
        shape = weights.shape
        self._weights = weights
        self._device = weights.embedding.device
        kv_shape = (shape.layers, 2, slots, max_positions, shape.kv_heads, shape.head_dim)
        self._kv = torch.empty(kv_shape, device=self._device)
        cos, sin = rotary_tables(max_positions, shape.head_dim, shape.rope_theta)
        self._cos, self._sin = cos.to(self._device), sin.to(self._device)

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run the chunks; logits [n, vocab] for the last `tail` tokens of the chunks with `wants_logits`, in order."""
        tokens = torch.tensor([token for chunk in chunks for token in chunk.tokens], device=self._device)
        positions = torch.cat(
            [torch.arange(chunk.start, chunk.start + len(chunk.tokens), device=self._device) for chunk in chunks]
        )
        turns = (self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1))
        eps = self._weights.shape.rms_norm_eps
        hidden = F.embedding(tokens, self._weights.embedding)
        for index, layer in enumerate(self._weights.layers):
            hidden += self._attention(norm(hidden, layer.attention_norm, eps), layer, index, turns, chunks)
            hidden += mlp(norm(hidden, layer.mlp_norm, eps), layer)
        return F.linear(norm(hidden[wanted_rows(chunks)], self._weights.final_norm, eps), self._weights.head)

    def _attention(
        self, x: Tensor, layer: LayerWeights, index: int, turns: tuple[Tensor, Tensor], chunks: Sequence[Chunk]
    ) -> Tensor:
        shape = self._weights.shape
        qkv = F.linear(x, layer.qkv).view(len(x), -1, shape.head_dim)
        queries = rotate(qkv[:, : shape.heads], *turns)
        keys = rotate(qkv[:, shape.heads : shape.heads + shape.kv_heads], *turns)
        values = qkv[:, shape.heads + shape.kv_heads :]
        out = torch.empty_like(queries)
        row = 0
        for chunk in chunks:
            count = len(chunk.tokens)
            rows, end = slice(row, row + count), chunk.start + count
            kept_keys, kept_values = self._kv[index, :, chunk.blocks[0], :end]
            kept_keys[chunk.start :] = keys[rows]
            kept_values[chunk.start :] = values[rows]
            mask = causal_mask(count, end, self._device) if count > 1 else None
            out[rows] = attend(queries[rows], kept_keys, kept_values, mask)
            row += count
        return F.linear(out.flatten(1), layer.attention_out)
