"""The arithmetic of a Llama layer, as functions of tensors: what every decoder of this engine shares.

    hidden --norm--> x --qkv--> queries, keys --rotate--> attend --> + hidden --norm--> mlp --> + hidden

No cache, no batch, no state: where keys and values come from is the business of who calls.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.weights import LayerWeights


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Each row of x [t, hidden] divided by its root mean square, times `weight`."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention of one request; queries [t, heads, d], keys and values [n, kv_heads, d]."""
    count, heads, head_dim = queries.shape
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    if mask is None:
        # One query row sees everything: the heads of a group become rows, and no key is read twice.
        grouped = queries.view(keys.shape[0], -1, head_dim)
        return F.scaled_dot_product_attention(grouped[None], keys[None], values[None]).view(1, heads, head_dim)
    rows = queries.transpose(0, 1)[None]
    out = F.scaled_dot_product_attention(rows, keys[None], values[None], attn_mask=mask, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(count, heads, head_dim)


def causal_mask(count: int, end: int, device: torch.device) -> Tensor:
    """[count, end], 0 where the i-th of the last `count` positions may look and -inf where it may not."""
    return torch.full((count, end), float("-inf"), device=device).triu(end - count + 1)


def mlp(x: Tensor, layer: LayerWeights) -> Tensor:
    """The gated feed-forward part of a layer, x [t, hidden]."""
    return gated(x, layer.gate_up, layer.down)


def gated(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """silu(gate x) * (up x), and `down` of that; x [..., hidden], `gate_up` [2 * inner, hidden]: gate above up."""
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


def rotary_tables(positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions [positions, head_dim], float32, computed in float64."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding by halves: element i turns together with element i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
