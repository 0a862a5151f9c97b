"""From a GGUF file to a Hugging Face directory, for Llama models with a byte-level BPE tokenizer.

Three things differ between the two formats. Names: `blk.3.attn_q` is `model.layers.3.self_attn.q_proj`. Quantisation:
blocks of 4- and 8-bit integers with scales become float32, which holds them exactly. And the rows of the query and key
projections: llama.cpp rotates neighbouring pairs (0,1), (2,3), ... where Hugging Face rotates halves (0, d/2),
(1, d/2+1), ..., so llama.cpp stores each head's rows interleaved, and the import takes the interleaving back.

Costs: reading the metadata takes 3 to 5 s (a Python object per vocabulary entry), dequantising SmolLM2 about 5 s.
The tiny model reads the metadata only.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

Weights = dict[str, NDArray[np.float32]]

TINY_LAYERS = 2
EMBEDDING_STD = 0.02
"""Small beside what the layers write, so that even random layers decide the next token, not the last token alone."""

CONTROL_TOKEN_TYPE = 3
"""llama.cpp's type of special tokens in `tokenizer.ggml.token_type`."""

TEMPLATE_WITH_TOOLS = Path(__file__).with_name("chatml_tools.jinja")

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {
    "token_embd": "model.embed_tokens.weight",
    "output_norm": "model.norm.weight",
    "output": "lm_head.weight",
}


def import_smollm2(gguf: Path, directory: Path) -> None:
    """Write the model of `gguf` with its own weights and chat template into `directory`."""
    fields = _Fields(GGUFReader(gguf))
    weights = {_hugging_face_name(tensor.name): _float32(tensor, fields) for tensor in fields.reader.tensors}
    _write(directory, fields, weights, layers=fields.integer("llama.block_count"))


def import_tiny(gguf: Path, directory: Path, seed: int = 0) -> None:
    """Write a model with the tokenizer and shapes of `gguf`, but two layers of random weights, into `directory`."""
    fields = _Fields(GGUFReader(gguf))
    weights = _random_weights(fields, np.random.default_rng(seed))
    _write(directory, fields, weights, layers=TINY_LAYERS, chat_template=TEMPLATE_WITH_TOOLS.read_text())


def undo_rotary_interleaving(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a query or key projection, from llama.cpp's order of pairs to Hugging Face's order of halves."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


class _Fields:
    """Typed access to the metadata of a GGUF file; the library itself is untyped."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def value(self, key: str) -> Any:
        return self.reader.fields[key].contents()

    def integer(self, key: str) -> int:
        return int(self.value(key))

    @property
    def heads(self) -> int:
        return self.integer("llama.attention.head_count")

    @property
    def kv_heads(self) -> int:
        return self.integer("llama.attention.head_count_kv")

    @property
    def hidden(self) -> int:
        return self.integer("llama.embedding_length")


def _hugging_face_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    return _OUTER_NAMES[parts[0]]


def _float32(tensor: Any, fields: _Fields) -> NDArray[np.float32]:
    rows = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if ".attn_q." in tensor.name:
        rows = undo_rotary_interleaving(rows, fields.heads)
    elif ".attn_k." in tensor.name:
        rows = undo_rotary_interleaving(rows, fields.kv_heads)
    return np.ascontiguousarray(rows)


def _random_weights(fields: _Fields, rng: np.random.Generator) -> Weights:
    hidden, inner = fields.hidden, fields.integer("llama.feed_forward_length")
    kv_width = hidden // fields.heads * fields.kv_heads
    shapes = {
        "attn_q": (hidden, hidden),
        "attn_k": (kv_width, hidden),
        "attn_v": (kv_width, hidden),
        "attn_output": (hidden, hidden),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }

    def normal(shape: tuple[int, int], std: float) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(std)

    weights = {"model.embed_tokens.weight": normal((fields.integer("llama.vocab_size"), hidden), EMBEDDING_STD)}
    for layer in range(TINY_LAYERS):
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{_LAYER_NAMES[name]}.weight"] = normal(shape, shape[1] ** -0.5)
        for name in ("attn_norm", "ffn_norm"):
            weights[f"model.layers.{layer}.{_LAYER_NAMES[name]}.weight"] = np.ones(hidden, dtype=np.float32)
    weights["model.norm.weight"] = np.ones(hidden, dtype=np.float32)
    return weights


def _write(
    directory: Path, fields: _Fields, weights: Weights, *, layers: int, chat_template: str | None = None
) -> None:
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    special = {name: fields.integer(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "padding", "unknown")}
    ids = {"bos_token_id": special["bos"], "eos_token_id": special["eos"], "pad_token_id": special["padding"]}
    _write_json(directory / "config.json", _config(fields, layers, tied="lm_head.weight" not in weights) | ids)
    _write_json(directory / "generation_config.json", ids)
    tokens: list[str] = fields.value("tokenizer.ggml.tokens")
    _write_json(directory / "tokenizer.json", _tokenizer(fields, tokens))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[special["bos"]],
        "eos_token": tokens[special["eos"]],
        "unk_token": tokens[special["unknown"]],
        "pad_token": tokens[special["padding"]],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields.integer("llama.context_length"),
        "chat_template": chat_template or fields.value("tokenizer.chat_template"),
    }
    _write_json(directory / "tokenizer_config.json", tokenizer_config)


def _config(fields: _Fields, layers: int, *, tied: bool) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": fields.hidden,
        "intermediate_size": fields.integer("llama.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": fields.heads,
        "num_key_value_heads": fields.kv_heads,
        "head_dim": fields.hidden // fields.heads,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": fields.integer("llama.context_length"),
        # The file keeps a float32 (9.99999975e-06); the shortest decimal that rounds to it is what was meant.
        "rms_norm_eps": float(str(np.float32(fields.value("llama.attention.layer_norm_rms_epsilon")))),
        "rope_theta": float(fields.value("llama.rope.freq_base")),
        "tie_word_embeddings": tied,
        "vocab_size": fields.integer("llama.vocab_size"),
    }


def _tokenizer(fields: _Fields, tokens: list[str]) -> dict[str, object]:
    """The `tokenizer.json` of SmolLM2: digits one by one, then byte-level BPE with GPT-2's splitting pattern."""
    kinds: list[int] = fields.value("tokenizer.ggml.token_type")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **flags}
            for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == CONTROL_TOKEN_TYPE
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": fields.value("tokenizer.ggml.merges"),
        },
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
