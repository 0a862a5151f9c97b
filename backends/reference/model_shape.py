"""The sizes of a Llama decoder, read from `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.reference.errors import ModelUnavailable, ModelUnsupported

_SIZES: Final = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
)
"""What has no default."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the decoder needs to know beside its weights."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    rms_norm_eps: float
    rope_theta: float
    tied_embeddings: bool
    eos_token_ids: frozenset[int]

    @property
    def kv_width(self) -> int:
        """Numbers a token adds to the keys (and again to the values) of one layer."""
        return self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes a token takes in the KV cache, float32, all layers."""
        return 2 * self.layers * self.kv_width * 4


def read_shape(directory: Path) -> ModelShape:
    """Read `config.json` (and the end-of-sequence ids of `generation_config.json`).

    Raises `ModelUnsupported` and, where a file is broken or lacks a size, `ModelUnavailable`.
    """
    config = _read(directory / "config.json")
    _refuse_unsupported(config)
    for size in _SIZES:
        if size not in config:
            raise ModelUnavailable(f"{size} in {directory / 'config.json'}", "the file is incomplete")
    heads = int(config["num_attention_heads"])
    return ModelShape(
        layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        inner=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        vocab=int(config["vocab_size"]),
        max_positions=int(config["max_position_embeddings"]),
        rms_norm_eps=float(config["rms_norm_eps"]),
        rope_theta=float(_rope(config).get("rope_theta", config.get("rope_theta", 10_000.0))),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(directory, config),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelUnavailable(f"JSON in {path}", f"the file is broken: {error}") from None
    if not isinstance(found, dict):
        raise ModelUnavailable(f"an object in {path}", "the file is another's")
    return found


def _rope(config: Mapping[str, object]) -> Mapping[str, float]:
    """Recent configs keep theta beside the scaling in `rope_parameters`, older ones at the top."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    assert isinstance(parameters, dict)
    return parameters


def _refuse_unsupported(config: Mapping[str, object]) -> None:
    if config.get("model_type") != "llama":
        raise ModelUnsupported("model_type", config.get("model_type"))
    for field in ("attention_bias", "mlp_bias"):
        if config.get(field):
            raise ModelUnsupported(field, config[field])
    if (activation := config.get("hidden_act", "silu")) != "silu":
        raise ModelUnsupported("hidden_act", activation)
    rope = _rope(config)
    if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise ModelUnsupported("rope_type", kind)


def _eos_token_ids(directory: Path, config: Mapping[str, object]) -> frozenset[int]:
    generation = directory / "generation_config.json"
    source = _read(generation) if generation.is_file() else config
    value = source.get("eos_token_id", config.get("eos_token_id"))
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list) else [value])
