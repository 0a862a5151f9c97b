"""Attention, by what a token leaves in the cache.

    grouped     x -> keys, values of each kv head                        2 * kv heads * head dim numbers a token
    latent      x -> c = norm(down x), and one rotated key for all heads  latent + rope numbers a token

Of a latent c each head has keys K c and values V c. *Expanded*, they are computed for all tokens so far, and attention
goes on as ever. *Absorbed*, nothing is: since q . (K c) = (K^T q) . c, the head asks with K^T q, looks at the latents
themselves, and V is applied to what it has taken from them, once:

    scores   (K^T q) . c + q' . k'          q', k': the rotated parts, which no matrix may be moved past
    out      V (softmax(scores) c)

It is the same number in another order. Expanded costs heads * latent * (nope + value) products a *cached token*,
absorbed as much a *query*: so prompts are computed expanded, and answers absorbed (DeepSeek-V2, 2024, section 2.1).

All tensors end with the dimension that is named last; x is [..., tokens, hidden], and a row of the cache [..., width].
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.layers import norm, rotate

EPS: Final = 1e-5
Turns = tuple[Tensor, Tensor]
"""Cosines and sines [tokens, dim] of the positions of x."""


class Attention(Protocol):
    """The attention of one layer."""

    @property
    def width(self) -> int:
        """Numbers of a row: what a token leaves in the cache."""

    @property
    def turned(self) -> int:
        """Numbers of a head that are rotated."""

    def rows(self, x: Tensor, turns: Turns) -> Tensor:
        """What the tokens leave [..., tokens, width]."""

    def answer(self, x: Tensor, rows: Tensor, turns: Turns, mask: Tensor) -> Tensor:
        """What the tokens take from `rows` [..., all, width]; `mask` [tokens, all] is added to the scores."""


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Heads that share keys and values by groups; MHA where each has its own. Matrices are [out, in]."""

    heads: int
    kv_heads: int
    query: Tensor = field(repr=False)
    keys: Tensor = field(repr=False)
    values: Tensor = field(repr=False)
    out: Tensor = field(repr=False)

    @property
    def width(self) -> int:
        """Keys and values of the kv heads."""
        return 2 * len(self.keys)

    @property
    def turned(self) -> int:
        """All of a head."""
        return len(self.keys) // self.kv_heads

    def rows(self, x: Tensor, turns: Turns) -> Tensor:
        """Rotated keys, and values."""
        keys = _turned(_heads(F.linear(x, self.keys), self.kv_heads), turns).flatten(-2)
        return torch.cat((keys, F.linear(x, self.values)), dim=-1)

    def answer(self, x: Tensor, rows: Tensor, turns: Turns, mask: Tensor) -> Tensor:
        """As `Attention` says."""
        queries = _turned(_heads(F.linear(x, self.query), self.heads), turns)
        keys, values = (_heads(half, self.kv_heads).transpose(-3, -2) for half in rows.chunk(2, dim=-1))
        taken = F.scaled_dot_product_attention(queries.transpose(-3, -2), keys, values, attn_mask=mask, enable_gqa=True)
        return F.linear(taken.transpose(-3, -2).flatten(-2), self.out)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Heads over one latent a token. `query` [heads * (nope + rope), hidden], `down` [latent + rope, hidden],
    `key_up` [heads, nope, latent], `value_up` [heads, value, latent]. `take` is `expanded` or `absorbed`."""

    query: Tensor = field(repr=False)
    down: Tensor = field(repr=False)
    latent_norm: Tensor = field(repr=False)
    key_up: Tensor = field(repr=False)
    value_up: Tensor = field(repr=False)
    out: Tensor = field(repr=False)
    take: "Callable[[LatentAttention, Tensor, Tensor, Tensor], Tensor]"

    @property
    def width(self) -> int:
        """A latent, and the rotated key of all heads."""
        return len(self.down)

    @property
    def latent(self) -> int:
        """Numbers of a latent."""
        return len(self.latent_norm)

    @property
    def turned(self) -> int:
        """The part of a head's query that stands for positions."""
        return len(self.down) - self.latent

    def rows(self, x: Tensor, turns: Turns) -> Tensor:
        """Normed latents, and rotated keys behind them."""
        latents, keys = F.linear(x, self.down).tensor_split([self.latent], dim=-1)
        return torch.cat((norm(latents, self.latent_norm, EPS), rotate(keys, *turns)), dim=-1)

    def answer(self, x: Tensor, rows: Tensor, turns: Turns, mask: Tensor) -> Tensor:
        """As `Attention` says."""
        queries = _heads(F.linear(x, self.query), len(self.key_up))
        plain, turning = queries.tensor_split([self.key_up.shape[1]], dim=-1)
        asked = torch.cat((plain, _turned(turning, turns)), dim=-1)
        return F.linear(self.take(self, asked, rows, mask).flatten(-2), self.out)


def expanded(layer: LatentAttention, queries: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """What each head takes [..., tokens, heads, value]: keys and values of all rows are computed. `queries`
    [..., tokens, heads, nope + rope], their last part rotated."""
    latents, turned = rows.tensor_split([layer.latent], dim=-1)
    keys = torch.einsum("...nl,hdl->...hnd", latents, layer.key_up)
    shared = turned.unsqueeze(-3).expand(*keys.shape[:-1], turned.shape[-1])
    values = torch.einsum("...nl,hdl->...hnd", latents, layer.value_up)
    taken = F.scaled_dot_product_attention(
        queries.transpose(-3, -2), torch.cat((keys, shared), dim=-1), values, attn_mask=mask
    )
    return taken.transpose(-3, -2)


def absorbed(layer: LatentAttention, queries: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """The same of the rows themselves: all heads look at one key and one value a token."""
    plain, turned = queries.tensor_split([layer.key_up.shape[1]], dim=-1)
    asked = torch.cat((torch.einsum("...thd,hdl->...htl", plain, layer.key_up), turned.transpose(-3, -2)), dim=-1)
    scores = asked @ rows.unsqueeze(-3).transpose(-2, -1) / queries.shape[-1] ** 0.5
    taken = (scores + mask).softmax(dim=-1) @ rows[..., : layer.latent].unsqueeze(-3)
    return torch.einsum("...htl,hdl->...thd", taken, layer.value_up)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], heads, -1)


def _turned(x: Tensor, turns: Turns) -> Tensor:
    cos, sin = turns
    return rotate(x, cos.unsqueeze(-2), sin.unsqueeze(-2))
