"""Layers of attention and experts, over rows in blocks.

    scores      all tokens of a text at once, without a cache: for training and judging
    decoded     tokens behind those that are cached: their rows are written to blocks, and all rows read from there

A block table is as the engine's: position p lies in row p % block size of block table[p // block size].
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from backends.reference.latent.attention import (
    EPS,
    Attention,
    GroupedAttention,
    LatentAttention,
    Turns,
    absorbed,
    expanded,
)
from backends.reference.latent.experts import Experts, mixture
from backends.reference.layers import causal_mask, norm, rotary_tables

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class LatentShape:
    """The sizes of a small model. `kv_heads` None: latent attention; else grouped, with that many. A head has
    `head_dim` numbers of keys and values, and `rope` more of latent attention's queries. `experts` of `inner`, of which
    a token passes `active`, and a shared one of `shared`."""

    layers: int = 4
    hidden: int = 128
    heads: int = 8
    kv_heads: int | None = None
    head_dim: int = 16
    latent: int = 32
    rope: int = 8
    experts: int = 8
    active: int = 2
    inner: int = 64
    shared: int = 64
    vocab: int = 256
    rope_theta: float = 10_000.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer."""

    attention_norm: Tensor = field(repr=False)
    attention: Attention
    experts_norm: Tensor = field(repr=False)
    experts: Experts


@dataclass(frozen=True, slots=True)
class LatentModel:
    """All weights; the head is the embedding."""

    shape: LatentShape
    embedding: Tensor = field(repr=False)
    layers: tuple[Layer, ...]
    final_norm: Tensor = field(repr=False)

    def tensors(self) -> Iterator[Tensor]:
        """All of them, for an optimiser."""
        yield from _tensors(self)

    @property
    def width(self) -> int:
        """Numbers of a row of the cache."""
        return self.layers[0].attention.width

    def on(self, device: str) -> "LatentModel":
        """The same model on a device; tensors that are there already are shared."""
        return _on(self, torch.device(device))

    def absorbing(self) -> "LatentModel":
        """The same model with latent attention in its absorbed form; grouped attention stays."""
        return replace(
            self,
            layers=tuple(
                replace(one, attention=replace(one.attention, take=absorbed))
                if isinstance(one.attention, LatentAttention)
                else one
                for one in self.layers
            ),
        )


class PagedRows:
    """Blocks of rows for all layers of a model; what nobody wrote is anything."""

    def __init__(self, model: LatentModel, *, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        device = model.embedding.device
        self._rows = torch.empty(len(model.layers), blocks * block_size, model.width, device=device)

    @property
    def bytes_per_token(self) -> int:
        """What a token takes, all layers."""
        layers, _, width = self._rows.shape
        return layers * width * self._rows.element_size()

    def places(self, table: Sequence[int], start: int, end: int) -> Tensor:
        """Where the rows of positions `start` to `end` lie."""
        positions = torch.arange(start, end, device=self._rows.device)
        blocks = torch.tensor(table, device=self._rows.device)[positions // self.block_size]
        return blocks * self.block_size + positions % self.block_size

    def write(self, layer: int, places: Tensor, rows: Tensor) -> None:
        """Put rows where they belong."""
        self._rows[layer].index_copy_(0, places, rows)

    def read(self, layer: int, places: Tensor) -> Tensor:
        """The rows of some places, in order."""
        return self._rows[layer].index_select(0, places)


def new_model(shape: LatentShape, dice: Generator) -> LatentModel:
    """Random weights."""

    def matrix(*sizes: int) -> Tensor:
        return (torch.randn(*sizes, generator=dice) / math.sqrt(sizes[-1])).requires_grad_()

    def ones(size: int) -> Tensor:
        return torch.ones(size, requires_grad=True)

    def attention() -> Attention:
        all_heads, head = shape.heads * shape.head_dim, shape.head_dim
        out = matrix(shape.hidden, all_heads)
        if shape.kv_heads is not None:
            keys, values = (matrix(shape.kv_heads * head, shape.hidden) for _ in range(2))
            return GroupedAttention(shape.heads, shape.kv_heads, matrix(all_heads, shape.hidden), keys, values, out)
        return LatentAttention(
            query=matrix(shape.heads * (head + shape.rope), shape.hidden),
            down=matrix(shape.latent + shape.rope, shape.hidden),
            latent_norm=ones(shape.latent),
            key_up=matrix(shape.heads, head, shape.latent),
            value_up=matrix(shape.heads, head, shape.latent),
            out=out,
            take=expanded,
        )

    def experts() -> Experts:
        return Experts(
            active=shape.active,
            router=matrix(shape.experts, shape.hidden),
            gate_up=matrix(shape.experts, 2 * shape.inner, shape.hidden),
            down=matrix(shape.experts, shape.hidden, shape.inner),
            shared_gate_up=matrix(2 * shape.shared, shape.hidden),
            shared_down=matrix(shape.hidden, shape.shared),
        )

    layers = tuple(Layer(ones(shape.hidden), attention(), ones(shape.hidden), experts()) for _ in range(shape.layers))
    return LatentModel(shape, matrix(shape.vocab, shape.hidden), layers, ones(shape.hidden))


def scores(model: LatentModel, tokens: Tensor) -> Tensor:
    """Logits [..., n, vocab] of what follows each of the tokens [..., n], each seeing those before it."""
    count = tokens.shape[-1]
    mask, turns = causal_mask(count, count, tokens.device), _turns(model, 0, count)
    hidden = F.embedding(tokens, model.embedding)
    for layer in model.layers:
        x = norm(hidden, layer.attention_norm, EPS)
        hidden = hidden + layer.attention.answer(x, layer.attention.rows(x, turns), turns, mask)
        hidden = hidden + mixture(norm(hidden, layer.experts_norm, EPS), layer.experts)
    return F.linear(norm(hidden, model.final_norm, EPS), model.embedding)


@torch.inference_mode()
def decoded(model: LatentModel, tokens: Sequence[int], start: int, table: Sequence[int], cache: PagedRows) -> Tensor:
    """Logits [n, vocab] of n tokens at positions from `start`; those before are cached, and these are then. The table
    covers them all."""
    end = start + len(tokens)
    places, mask = cache.places(table, 0, end), causal_mask(len(tokens), end, _device(model))
    turns = _turns(model, start, end)
    hidden = F.embedding(torch.tensor(tokens, device=_device(model)), model.embedding)
    for number, layer in enumerate(model.layers):
        x = norm(hidden, layer.attention_norm, EPS)
        cache.write(number, places[start:], layer.attention.rows(x, turns))
        hidden = hidden + layer.attention.answer(x, cache.read(number, places), turns, mask)
        hidden = hidden + mixture(norm(hidden, layer.experts_norm, EPS), layer.experts)
    return F.linear(norm(hidden, model.final_norm, EPS), model.embedding)


def _turns(model: LatentModel, start: int, end: int) -> Turns:
    cos, sin = rotary_tables(end, model.layers[0].attention.turned, model.shape.rope_theta)
    return cos[start:].to(_device(model)), sin[start:].to(_device(model))


def _device(model: LatentModel) -> torch.device:
    return model.embedding.device


def _on(part: Part, device: torch.device) -> Part:
    found: object = part
    if isinstance(part, Tensor):
        found = part.detach().to(device)
    elif isinstance(part, tuple):
        found = tuple(_on(one, device) for one in part)
    elif is_dataclass(part) and not isinstance(part, type | LatentShape):
        found = replace(part, **{one.name: _on(getattr(part, one.name), device) for one in fields(part)})
    return cast("Part", found)


def _tensors(part: object) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _tensors(one)
    elif is_dataclass(part):
        for one in fields(part):
            yield from _tensors(getattr(part, one.name))
