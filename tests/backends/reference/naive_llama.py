"""The oracle: a Llama forward pass over a whole sequence, without cache, batch, paging or stacked matrices.

Written apart from the decoder and along other lines: rotation by complex numbers, attention head by head, softmax by
hand, float64.
"""

import torch
from torch import Tensor

from backends.reference.model_shape import ModelShape
from backends.reference.weights import LayerWeights, ModelWeights


def naive_logits(weights: ModelWeights, tokens: list[int]) -> Tensor:
    """Logits [len(tokens), vocab], float64."""
    return _hidden(weights, tokens) @ weights.head.double().T


def _hidden(weights: ModelWeights, tokens: list[int]) -> Tensor:
    shape = weights.shape
    x = weights.embedding[tokens].double()
    for layer in weights.layers:
        x = x + _attention(_norm(x, layer.attention_norm, shape), layer, shape)
        inner = _norm(x, layer.mlp_norm, shape)
        gate, up = torch.split(layer.gate_up.double(), shape.inner)
        activated = inner @ gate.T
        x = x + (activated * torch.sigmoid(activated) * (inner @ up.T)) @ layer.down.double().T
    return _norm(x, weights.final_norm, shape)


def naive_greedy(weights: ModelWeights, prompt: list[int], count: int) -> list[int]:
    """The next `count` tokens by argmax, the whole sequence recomputed for each."""
    tokens = list(prompt)
    head = weights.head.double().T
    for _ in range(count):
        tokens.append(int((_hidden(weights, tokens)[-1] @ head).argmax()))
    return tokens[len(prompt) :]


def _norm(x: Tensor, weight: Tensor, shape: ModelShape) -> Tensor:
    mean_square = (x * x).sum(-1) / x.shape[-1]
    return x / (mean_square + shape.rms_norm_eps).sqrt()[:, None] * weight.double()


def _attention(x: Tensor, layer: LayerWeights, shape: ModelShape) -> Tensor:
    q, k, v = torch.split(layer.qkv.double(), [shape.heads * shape.head_dim, shape.kv_width, shape.kv_width])
    group = shape.heads // shape.kv_heads
    outputs = []
    for head in range(shape.heads):
        mine = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
        theirs = slice(head // group * shape.head_dim, (head // group + 1) * shape.head_dim)
        queries, keys = _rotate(x @ q[mine].T, shape), _rotate(x @ k[theirs].T, shape)
        rows = []
        for position in range(len(x)):
            scores = keys[: position + 1] @ queries[position] / shape.head_dim**0.5
            share = (scores - scores.max()).exp()
            rows.append((share / share.sum()) @ (x[: position + 1] @ v[theirs].T))
        outputs.append(torch.stack(rows))
    return torch.cat(outputs, dim=-1) @ layer.attention_out.double().T


def _rotate(x: Tensor, shape: ModelShape) -> Tensor:
    half = shape.head_dim // 2
    angles = torch.tensor(
        [[at * shape.rope_theta ** (-2 * pair / shape.head_dim) for pair in range(half)] for at in range(len(x))],
        dtype=torch.float64,
    )
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], dim=-1)
