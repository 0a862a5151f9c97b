"""Weights of a Llama decoder as float32 torch tensors, from `*.safetensors`.

Query, key and value projections are stacked into one matrix, and so are the gate and up projections: one product with
a large matrix is faster than three with small ones, above all while decoding single tokens.
"""

from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from backends.reference.errors import ModelUnavailable
from backends.reference.model_shape import ModelShape, read_shape
from backends.reference.types import WeightForm

_ROWS_OF_IDENTITY: Final = 64


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]."""

    attention_norm: Tensor
    qkv: Tensor
    attention_out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All weights of one model; read-only, so engines in one process may share them."""

    shape: ModelShape
    embedding: Tensor = field(repr=False)
    layers: tuple[LayerWeights, ...] = field(repr=False)
    final_norm: Tensor = field(repr=False)
    head: Tensor = field(repr=False)


def load_weights(directory: Path) -> ModelWeights:
    """Load the weights of a Hugging Face directory, in one file or several. Raises `ModelUnavailable` where one is
    missing, broken, or of another size than `config.json` says, and what `read_shape` raises."""
    shape = read_shape(directory)
    tensors = _read_tensors(directory)

    def take(name: str, *size: int) -> Tensor:
        found = tensors.get(f"{name}.weight")
        if found is None:
            raise ModelUnavailable(f"tensor {name}.weight in {directory}", "the directory is incomplete")
        if found.shape != size:
            raise ModelUnavailable(
                f"tensor {name}.weight of {size} in {directory}",
                f"it has {tuple(found.shape)}: config.json is of another model",
            )
        return found

    hidden, inner, all_heads = shape.hidden, shape.inner, shape.heads * shape.head_dim

    def layer(index: int) -> LayerWeights:
        at = f"model.layers.{index}"
        rows = {"q": all_heads, "k": shape.kv_width, "v": shape.kv_width}
        return LayerWeights(
            attention_norm=take(f"{at}.input_layernorm", hidden),
            qkv=torch.cat([take(f"{at}.self_attn.{part}_proj", count, hidden) for part, count in rows.items()]),
            attention_out=take(f"{at}.self_attn.o_proj", hidden, all_heads),
            mlp_norm=take(f"{at}.post_attention_layernorm", hidden),
            gate_up=torch.cat([take(f"{at}.mlp.{part}_proj", inner, hidden) for part in ("gate", "up")]),
            down=take(f"{at}.mlp.down_proj", hidden, inner),
        )

    embedding = take("model.embed_tokens", shape.vocab, hidden)
    return ModelWeights(
        shape=shape,
        embedding=embedding,
        layers=tuple(layer(index) for index in range(shape.layers)),
        final_norm=take("model.norm", hidden),
        head=embedding if shape.tied_embeddings else take("lm_head", shape.vocab, hidden),
    )


def identity(weights: ModelWeights, form: WeightForm) -> bytes:
    """16 bytes that tell models of one shape apart, and what their matrices are kept as: of all norms and the first
    rows of the embedding. Two whose matrices alone differ have the same."""
    digest = blake2b(f"{form} {weights.shape.rope_theta} {weights.shape.rms_norm_eps}".encode(), digest_size=16)
    norms = [norm for layer in weights.layers for norm in (layer.attention_norm, layer.mlp_norm)]
    for part in (weights.embedding[:_ROWS_OF_IDENTITY], weights.final_norm, *norms):
        digest.update(part.detach().float().cpu().numpy().tobytes())
    return digest.digest()


def moved(weights: ModelWeights, device: torch.device) -> ModelWeights:
    """The same weights on `device`; tensors that are there already are shared."""

    def layer(one: LayerWeights) -> LayerWeights:
        return LayerWeights(*(getattr(one, part.name).to(device) for part in fields(LayerWeights)))

    embedding = weights.embedding.to(device)
    return ModelWeights(
        shape=weights.shape,
        embedding=embedding,
        layers=tuple(layer(one) for one in weights.layers),
        final_norm=weights.final_norm.to(device),
        head=embedding if weights.head is weights.embedding else weights.head.to(device),
    )


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping, only has keys()
                    tensors[name] = file.get_tensor(name).to(torch.float32)
        except SafetensorError as error:
            raise ModelUnavailable(f"tensors in {path}", f"the file is broken: {error}") from None
    return tensors
