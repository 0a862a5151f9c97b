"""Random weights small enough for hundreds of runs: same architecture, same vocabulary, 1/50 of the tiny model."""

import math

import torch
from torch import Tensor

from backends.reference.model_shape import ModelShape
from backends.reference.weights import LayerWeights, ModelWeights

VOCAB = 49_152
EOS = 2


def micro_shape(vocab: int = VOCAB) -> ModelShape:
    return ModelShape(
        layers=2,
        hidden=32,
        inner=48,
        heads=4,
        kv_heads=2,
        head_dim=8,
        vocab=vocab,
        max_positions=2048,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        tied_embeddings=True,
        eos_token_ids=frozenset({EOS}),
    )


def micro_weights(vocab: int = VOCAB, seed: int = 0) -> ModelWeights:
    shape = micro_shape(vocab)
    dice = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=dice) / math.sqrt(columns)

    def around_one() -> Tensor:
        return 1 + torch.randn(shape.hidden, generator=dice) / 10

    embedding = normal(vocab, shape.hidden)
    layers = tuple(
        LayerWeights(
            attention_norm=around_one(),
            qkv=2 * normal((shape.heads + 2 * shape.kv_heads) * shape.head_dim, shape.hidden),
            attention_out=2 * normal(shape.hidden, shape.heads * shape.head_dim),
            mlp_norm=around_one(),
            gate_up=normal(2 * shape.inner, shape.hidden),
            down=2 * normal(shape.hidden, shape.inner),
        )
        for _ in range(shape.layers)
    )
    return ModelWeights(shape, embedding, layers, around_one(), embedding)
