"""What is published of models: what weights and a token's KV cache take, and what a token makes a GPU do. Pure.

    a token   goes through   active parameters        2 FLOP each (a multiply and an add)
              looks at       all tokens before it     2 · (width of a key + width of a value) FLOP a head and layer
              leaves behind  its KV cache             a key and a value for each KV head and layer

Layers differ in what they keep:

    everything       [k v][k v][k v] ... [k v]        grows with the prompt
    a window of w    ... [k v] × w                    stops growing: whoever looks back sees w tokens
    latent (MLA)     [c]  [c]  [c]  ... [c]           one short vector for all heads, and the rotary part of the key

and a mixture of experts sends each token through `chosen` of its `experts`: all of them must be in memory, few of them
are read for one token, most of them for a batch:

    touched by B tokens = experts · (1 − (1 − chosen / experts)^B)      as if chosen evenly and independently

Sources: the configurations that the models were published with, and their papers (DeepSeek-V2 arXiv 2405.04434,
DeepSeek-V3 arXiv 2412.19437, gpt-oss model card arXiv 2508.10925, OPT arXiv 2205.01068, Llama 2 arXiv 2307.09288).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CATALOGUE", "Cached", "Experts", "Latent", "Layers", "Model", "PerHead"]


@dataclass(frozen=True, slots=True)
class PerHead:
    """A key and a value for each KV head: MHA where there are as many as heads, GQA with fewer, MQA with one."""

    kv_heads: int
    size: int

    @property
    def numbers(self) -> int:
        """Kept for a token, in each layer."""
        return 2 * self.kv_heads * self.size


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: `rank` numbers from which keys and values of all heads are made, and `rotary` of a
    key that all heads share. It cannot be divided among GPUs: each has all of it."""

    rank: int
    rotary: int

    @property
    def numbers(self) -> int:
        """Kept for a token, in each layer."""
        return self.rank + self.rotary


Cached = PerHead | Latent


@dataclass(frozen=True, slots=True)
class Layers:
    """So many layers that look back alike: at everything, or at the `window_tokens` before."""

    count: int
    window_tokens: int | None = None

    def seen(self, tokens: int) -> int:
        """How many of so many tokens a layer keeps."""
        return tokens if self.window_tokens is None else min(tokens, self.window_tokens)


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` experts in each layer, of which a token goes through `chosen`."""

    count: int
    chosen: int

    def touched(self, tokens: float) -> float:
        """How many experts of a layer some token of a batch goes through, on average."""
        missed: float = (1 - self.chosen / self.count) ** tokens
        return self.count * (1 - missed)


@dataclass(frozen=True, slots=True)
class Model:
    """`params`: all that must be in memory; `active_params`: those that one token goes through. `key_width` and
    `value_width`: numbers of a key and a value of a head, as a prefill computes them. `context_tokens`: the longest
    prompt and answer that it was published for."""

    name: str
    params: float
    active_params: float
    hidden: int
    heads: int
    key_width: int
    value_width: int
    layers: tuple[Layers, ...]
    cached: Cached
    context_tokens: int
    experts: Experts | None = None

    @property
    def layer_count(self) -> int:
        """All layers, of all kinds."""
        return sum(one.count for one in self.layers)

    @property
    def expert_params(self) -> float:
        """Of one expert, over all layers: what `chosen` of them and all of them differ by, shared out."""
        if self.experts is None:
            return 0.0
        return (self.params - self.active_params) / (self.experts.count - self.experts.chosen)

    def params_read(self, tokens: float) -> float:
        """Parameters that a step over so many tokens reads: all of a dense model, of experts those touched."""
        if self.experts is None:
            return self.params
        dense = self.active_params - self.experts.chosen * self.expert_params
        return dense + self.experts.touched(tokens) * self.expert_params

    def numbers_kept(self, tokens: int) -> int:
        """Numbers in the KV cache of one sequence of so many tokens, in all layers."""
        return sum(one.count * one.seen(tokens) for one in self.layers) * self.cached.numbers

    def pairs_seen(self, new_tokens: float, tokens: float) -> float:
        """Pairs of a new token and one that it looks at, summed over the layers: `new_tokens` at the end of `tokens`.

        A token looks at all before it and at itself, so that `u` of `n` make u · (n − u) + u² / 2 pairs in a layer that
        looks at everything, and u · w where the window is shorter than what lies before it.
        """
        before = tokens - new_tokens
        whole = new_tokens * before + new_tokens**2 / 2
        return sum(
            one.count * (whole if one.window_tokens is None else min(whole, new_tokens * one.window_tokens))
            for one in self.layers
        )

    @property
    def pair_flops(self) -> float:
        """Of attention in one layer, for one pair: a product for the score, one for the sum, in each head."""
        return 2.0 * self.heads * (self.key_width + self.value_width)

    @property
    def decode_pair_flops(self) -> float:
        """The same while decoding. Latent attention works on what is kept, without making keys and values of it: longer
        vectors, but none to be made."""
        if isinstance(self.cached, Latent):
            return 2.0 * self.heads * (self.cached.numbers + self.cached.rank)
        return self.pair_flops


def _usual(
    name: str,
    params: float,
    shape: tuple[int, int, int, int, int],
    context_tokens: int,
    *,
    sparse: tuple[float, Experts] | None = None,
    layers: tuple[Layers, ...] | None = None,
) -> Model:
    """A model with keys and values for each KV head; `shape`: layers, hidden, heads, KV heads, size of a head;
    `sparse`: active parameters and experts, where it has some."""
    active_params, experts = sparse or (params, None)
    count, hidden, heads, kv_heads, size = shape
    return Model(
        name=name,
        params=params,
        active_params=active_params,
        hidden=hidden,
        heads=heads,
        key_width=size,
        value_width=size,
        layers=layers or (Layers(count),),
        cached=PerHead(kv_heads, size),
        context_tokens=context_tokens,
        experts=experts,
    )


def _deepseek(name: str, params: float, active_params: float, layers: int, hidden: int, experts: Experts) -> Model:
    """Keys of 128 numbers and 64 of rotary position, values of 128; 512 + 64 are kept."""
    return Model(
        name=name,
        params=params,
        active_params=active_params,
        hidden=hidden,
        heads=128,
        key_width=128 + 64,
        value_width=128,
        layers=(Layers(layers),),
        cached=Latent(512, 64),
        context_tokens=163_840,
        experts=experts,
    )


_ALTERNATING_WINDOW = 128
"""Tokens that every second layer of gpt-oss looks back at."""

_ALL = (
    _usual("smollm2-135m", 0.135e9, (30, 576, 9, 3, 64), 8_192),
    _usual("opt-13b", 12.9e9, (40, 5120, 40, 40, 128), 2_048),
    _usual("llama-2-7b", 6.74e9, (32, 4096, 32, 32, 128), 4_096),
    _usual("llama-3.1-8b", 8.03e9, (32, 4096, 32, 8, 128), 131_072),
    _usual("llama-3.1-70b", 70.6e9, (80, 8192, 64, 8, 128), 131_072),
    _usual("llama-3.1-405b", 405.9e9, (126, 16384, 128, 8, 128), 131_072),
    _usual("qwen2.5-7b", 7.62e9, (28, 3584, 28, 4, 128), 131_072),
    _usual("qwen2.5-72b", 72.7e9, (80, 8192, 64, 8, 128), 131_072),
    _usual("qwen3-8b", 8.2e9, (36, 4096, 32, 8, 128), 40_960),
    _usual("qwen3-32b", 32.8e9, (64, 5120, 64, 8, 128), 40_960),
    _usual("qwen3-235b-a22b", 235e9, (94, 4096, 64, 4, 128), 40_960, sparse=(22e9, Experts(128, 8))),
    _usual("mixtral-8x7b", 46.7e9, (32, 4096, 32, 8, 128), 32_768, sparse=(12.9e9, Experts(8, 2))),
    _usual("deepseek-67b", 67e9, (95, 8192, 64, 8, 128), 4_096),
    _deepseek("deepseek-v2", 236e9, 21e9, 60, 5120, Experts(160, 6)),
    _deepseek("deepseek-v3", 671e9, 37e9, 61, 7168, Experts(256, 8)),
    _usual(
        "gpt-oss-20b",
        20.9e9,
        (24, 2880, 64, 8, 64),
        131_072,
        sparse=(3.6e9, Experts(32, 4)),
        layers=(Layers(12), Layers(12, _ALTERNATING_WINDOW)),
    ),
    _usual(
        "gpt-oss-120b",
        116.8e9,
        (36, 2880, 64, 8, 64),
        131_072,
        sparse=(5.1e9, Experts(128, 4)),
        layers=(Layers(18), Layers(18, _ALTERNATING_WINDOW)),
    ),
)

CATALOGUE: Final[Mapping[str, Model]] = MappingProxyType({model.name: model for model in _ALL})
"""By name."""
