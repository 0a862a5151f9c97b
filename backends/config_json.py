"""A model by the `config.json` that it was published with, in Hugging Face's form, where the catalogue lacks it. Pure.

    attention     q, o   hidden × heads × size each           k, v   hidden × KV heads × size each
    ... latent    q      hidden × q rank + q rank × heads × (size + rotary), or without the rank in one
                  kv     hidden × (rank + rotary) + rank × heads × (size + value)      o   heads × value × hidden
    feed forward  3 × hidden × inner with a gate, 2 without; of experts as often as there are, and a router
    embeddings    vocabulary × hidden, twice where the head has its own

Biases, norms and learned positions are left out, about a thousandth; so are layers that only guess further tokens
(11.5 B of DeepSeek-V3), and what makes tokens of pictures or sound. Active parameters are all but those of experts that
are not chosen, embeddings included; the card of gpt-oss leaves its input embedding out.

A field that is missing has the value that the class of its family gives it, and families differ in that. So only those
whose classes are known are read: of any other the same fields could mean something else.

Source: the classes of Hugging Face transformers (`configuration_*.py` and `modeling_*.py` of 5.17).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from backends.models import Cached, Experts, Latent, Layers, Model, PerHead

__all__ = ["FAMILIES", "ModelUnreadable", "model_of_config", "rounded_by", "sees_more_than_text"]

Windows = Literal["all", "pattern", "last"]
"""Which layers have the window where `layer_types` does not say: all, all but each nth, or those from
`max_window_layers` on."""

_MOST: Final = 10**8
"""Of any number in the file: beyond, it is a slip."""
_MOST_LAYERS: Final = 10_000
_MISSING: Final = "not in the file, and what holds without it differs by family and version"
_COUNTS: Final = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN: Final = ("num_experts_per_tok", "experts_per_token")


class ModelUnreadable(ValueError):
    """What a model takes cannot be said by this file: `field` and what is wrong with it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


@dataclass(frozen=True, slots=True)
class Family:
    """What the class of a `model_type` takes for granted. `tied`: one embedding at both ends. `lone_heads`: without
    `num_key_value_heads` each head has its own keys. `even_heads`: without `head_dim` heads share `hidden_size` evenly.
    `pattern`: each so manieth layer looks back at everything, where the file does not say. `matrices`: of a
    feed-forward part. `named`: fields that count and that the file has to have, if only as null, since the value of the
    class may be another one."""

    tied: bool = False
    lone_heads: bool = False
    even_heads: bool = True
    windows: Windows | None = None
    pattern: int | None = None
    matrices: int = 3
    named: tuple[str, ...] = ()


_LLAMA = Family(lone_heads=True)
_SIZED = Family(even_heads=False)
_ROUTED: Final = ("n_routed_experts", "n_shared_experts", "first_k_dense_replace")
_DEEPSEEK = Family(lone_heads=True, named=(*_ROUTED, "kv_lora_rank", "q_lora_rank"))

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "llama": _LLAMA,
        "granite": _LLAMA,
        "olmo2": _LLAMA,
        "olmoe": Family(lone_heads=True, named=("num_experts",)),
        "opt": Family(tied=True, lone_heads=True, matrices=2),
        "mistral": Family(windows="all", named=("sliding_window",)),
        "mixtral": Family(windows="all", named=("num_local_experts",)),
        "phi3": Family(lone_heads=True, windows="all"),
        "starcoder2": Family(tied=True, windows="all", matrices=2),
        "smollm3": Family(tied=True),
        "qwen2": Family(windows="last"),
        "qwen2_moe": Family(named=("num_experts", "shared_expert_intermediate_size")),
        "qwen3": Family(even_heads=False, windows="last"),
        "qwen3_moe": Family(named=("num_experts",)),
        "gemma": Family(tied=True, even_heads=False),
        "gemma2": Family(tied=True, even_heads=False, windows="pattern", pattern=2),
        "gemma3_text": Family(tied=True, even_heads=False, windows="pattern"),
        "cohere2": Family(tied=True, lone_heads=True, windows="pattern"),
        "gpt_oss": Family(even_heads=False, windows="pattern", pattern=2, named=("num_local_experts",)),
        "seed_oss": _SIZED,
        "glm4": _SIZED,
        "glm4_moe": Family(even_heads=False, named=_ROUTED),
        "deepseek": Family(lone_heads=True, named=_ROUTED),
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "kimi_k2": _DEEPSEEK,
    }
)
"""By `model_type`."""


def model_of_config(config: Mapping[str, object], name: str) -> Model:
    """The model of a file, under `name`. Raises `ModelUnreadable` for a family that is not known, and for a field that
    is needed and missing, or is no whole number of a size that can be."""
    of = _Fields(_text_of(config))
    family = FAMILIES.get(str(of.config.get("model_type")))
    if family is None:
        raise ModelUnreadable("model_type", f"{of.config.get('model_type')!r}: read are {', '.join(FAMILIES)}")
    of.must_name(family.named)
    cached, key_width, value_width = _attention(of, family)
    experts, idle_params = _experts(of)
    count = of.whole("num_hidden_layers", most=_MOST_LAYERS)
    params = _embeddings(of, family) + count * _attention_params(of, cached, key_width, value_width)
    params += _feed_forward_params(of, family)
    return Model(
        name=name,
        params=float(params),
        active_params=float(params - idle_params),
        hidden=of.whole("hidden_size"),
        heads=of.whole("num_attention_heads"),
        key_width=key_width,
        value_width=value_width,
        layers=_layers(of, family, count),
        cached=cached,
        context_tokens=of.whole("max_position_embeddings"),
        experts=experts,
    )


def rounded_by(config: Mapping[str, object]) -> str | None:
    """How its weights were rounded, by the file's own word (`fp8`, `mxfp4`, `awq`); None where it names none."""
    for part in (config, _text_of(config)):
        rounded = part.get("quantization_config")
        if isinstance(rounded, Mapping):
            return str(rounded.get("quant_method", "a method without a name"))
    return None


def sees_more_than_text(config: Mapping[str, object]) -> bool:
    """Whether there are parts for pictures or sound, which are not counted."""
    return _text_of(config) is not config


def _text_of(config: Mapping[str, object]) -> Mapping[str, object]:
    """Of a model that sees more than text, the part that reads and writes."""
    part = config.get("text_config")
    return part if isinstance(part, Mapping) else config


@dataclass(frozen=True, slots=True)
class _Fields:
    """A file's fields, by name and as what they have to be."""

    config: Mapping[str, object]

    def must_name(self, names: Iterable[str]) -> None:
        """Raises `ModelUnreadable` for the first of these that the file does not have, if only as null. The number of
        experts has three names, and one family more than one of them."""
        for name in names:
            others = _COUNTS if name in _COUNTS else (name,)
            if not any(other in self.config for other in others):
                raise ModelUnreadable(name, _MISSING)

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self.config.get(name) is not None

    def whole(self, name: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        """A whole number; `default` where it is missing or null. Raises `ModelUnreadable`."""
        value = self.config.get(name)
        if value is None:
            if default is None:
                raise ModelUnreadable(name, _MISSING)
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ModelUnreadable(name, f"{value!r} is no whole number from {least} to {most:,}")
        return value

    def says(self, name: str, default: bool) -> bool:
        """Yes or no; `default` where it is missing or null. Raises `ModelUnreadable`."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelUnreadable(name, f"{value!r} is neither true nor false")
        return value

    def first(self, names: tuple[str, ...]) -> str | None:
        """The name of these that the file has."""
        return next((name for name in names if self.has(name)), None)


def _attention(of: _Fields, family: Family) -> tuple[Cached, int, int]:
    """What is kept of a token, and the widths of a key and a value of a head."""
    if of.has("kv_lora_rank"):
        rotary, size = of.whole("qk_rope_head_dim"), of.whole("qk_nope_head_dim")
        return Latent(of.whole("kv_lora_rank"), rotary), size + rotary, of.whole("v_head_dim")
    hidden, heads = of.whole("hidden_size"), of.whole("num_attention_heads")
    size = of.whole("head_dim", hidden // heads if family.even_heads and hidden % heads == 0 else None)
    has_own = family.lone_heads or "num_key_value_heads" in of.config
    kv_heads = of.whole("num_key_value_heads", heads if has_own else None)
    if heads % kv_heads:
        raise ModelUnreadable("num_key_value_heads", f"{kv_heads} cannot be shared evenly by {heads} heads")
    return PerHead(kv_heads, size), size, size


def _attention_params(of: _Fields, cached: Cached, key_width: int, value_width: int) -> int:
    """Of one layer."""
    hidden, heads = of.whole("hidden_size"), of.whole("num_attention_heads")
    match cached:
        case PerHead(kv_heads, size):
            return 2 * hidden * heads * size + 2 * hidden * kv_heads * size
        case Latent(rank, rotary):
            queries = heads * key_width
            q_rank = of.whole("q_lora_rank", 0)
            asked = hidden * q_rank + q_rank * queries if q_rank else hidden * queries
            kept = hidden * (rank + rotary) + rank * heads * (key_width - rotary + value_width)
            return asked + kept + heads * value_width * hidden


def _embeddings(of: _Fields, family: Family) -> int:
    ends = 1 if of.says("tie_word_embeddings", family.tied) else 2
    return ends * of.whole("vocab_size") * of.whole("word_embed_proj_dim", of.whole("hidden_size"))


def _inner(of: _Fields) -> int:
    """Width of a feed-forward part that all tokens pass."""
    return of.whole("ffn_dim" if of.has("ffn_dim") else "intermediate_size")


def _expert_params(of: _Fields) -> int:
    """Of one expert in one layer."""
    return (
        3
        * of.whole("hidden_size")
        * of.whole("moe_intermediate_size" if of.has("moe_intermediate_size") else "intermediate_size")
    )


def _is_sparse(of: _Fields, layer: int) -> bool:
    """Whether a layer, counted from 0, has experts."""
    if layer < of.whole("first_k_dense_replace", 0, least=0) or layer % of.whole("moe_layer_freq", 1):
        return False
    dense = of.config.get("mlp_only_layers") or ()
    if not isinstance(dense, list | tuple):
        raise ModelUnreadable("mlp_only_layers", "is no list")
    return layer not in dense and (layer + 1) % of.whole("decoder_sparse_step", 1) == 0


def _sparse_layers(of: _Fields) -> int:
    if of.first(_COUNTS) is None:
        return 0
    return sum(_is_sparse(of, layer) for layer in range(of.whole("num_hidden_layers", most=_MOST_LAYERS)))


def _experts(of: _Fields) -> tuple[Experts | None, int]:
    """Experts of a layer and those that a token goes through; and the parameters of all that it does not."""
    counted, sparse = of.first(_COUNTS), _sparse_layers(of)
    if counted is None or not sparse:
        return None, 0
    count, chosen = of.whole(counted), of.whole(of.first(_CHOSEN) or _CHOSEN[0])
    if chosen > count:
        raise ModelUnreadable(of.first(_CHOSEN) or _CHOSEN[0], f"{chosen} of {count} experts cannot be chosen")
    if chosen == count:
        return None, 0
    return Experts(count, chosen), sparse * (count - chosen) * _expert_params(of)


def _feed_forward_params(of: _Fields, family: Family) -> int:
    """Of all layers: dense ones, experts with those that all tokens pass, and routers."""
    sparse, hidden = _sparse_layers(of), of.whole("hidden_size")
    dense = of.whole("num_hidden_layers", most=_MOST_LAYERS) - sparse
    params = dense * family.matrices * hidden * _inner(of) if dense else 0
    counted = of.first(_COUNTS)
    if counted is None or not sparse:
        return params
    count = of.whole(counted)
    together = of.whole("n_shared_experts", 0, least=0) * _expert_params(of)
    together += 3 * hidden * of.whole("shared_expert_intermediate_size", 0, least=0)
    return params + sparse * (count * _expert_params(of) + together + hidden * count)


def _layers(of: _Fields, family: Family, count: int) -> tuple[Layers, ...]:
    """Those that look back at everything, then those with a window."""
    windowed = _windowed(of, family, count)
    if not windowed:
        return (Layers(count),)
    narrow = Layers(windowed, of.whole("sliding_window"))
    return (narrow,) if windowed == count else (Layers(count - windowed), narrow)


def _windowed(of: _Fields, family: Family, count: int) -> int:
    """How many layers have a window. Raises `ModelUnreadable` where that cannot be told."""
    if of.has("layer_types"):
        return _named_windows(of, count)
    uses = of.says("use_sliding_window", default=family.windows != "last")
    if not uses or ("sliding_window" in of.config and not of.has("sliding_window")):
        return 0
    match family.windows:
        case "all":
            return count if of.has("sliding_window") else 0
        case "pattern":
            each = of.whole("sliding_window_pattern", family.pattern)
            return count - count // each
        case "last":
            return max(0, count - of.whole("max_window_layers", least=0))
        case None:
            if of.has("sliding_window"):
                raise ModelUnreadable(
                    "sliding_window", "which layers have it is not in the file: layer_types is missing"
                )
            return 0


def _named_windows(of: _Fields, count: int) -> int:
    kinds = of.config["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != count:
        raise ModelUnreadable("layer_types", f"is no list of {count} kinds, one for each layer")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise ModelUnreadable("layer_types", f"{kind!r}: what such a layer keeps is not known here")
    return kinds.count("sliding_attention")
