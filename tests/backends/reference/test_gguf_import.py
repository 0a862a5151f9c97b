"""A small GGUF file, written the way llama.cpp writes them, comes back as the weights it was made from."""

import json
from functools import reduce
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from backends.reference.chat_template import load_chat_template
from backends.reference.gguf_import import import_smollm2, import_tiny
from backends.reference.model_shape import read_shape
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.weights import ModelWeights, load_weights
from tests.backends.reference.naive_llama import naive_logits

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 3
HEAD_DIM = HIDDEN // HEADS
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz"]
TOKENS = [*SPECIAL, *LETTERS, "Ġ", *"0123456789", "ab", "abc"]
Floats = NDArray[np.float32]


def hugging_face_weights() -> dict[str, Floats]:
    """Random weights under Hugging Face's names; those to be quantised are multiples that survive it exactly enough."""
    dice = np.random.default_rng(3)

    def matrix(rows: int, columns: int) -> Floats:
        return dice.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)

    weights = {"model.embed_tokens.weight": matrix(len(TOKENS), HIDDEN), "model.norm.weight": matrix(1, HIDDEN)[0] + 1}
    for index in range(LAYERS):
        at = f"model.layers.{index}"
        weights |= {
            f"{at}.input_layernorm.weight": matrix(1, HIDDEN)[0] + 1,
            f"{at}.self_attn.q_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{at}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{at}.post_attention_layernorm.weight": matrix(1, HIDDEN)[0] + 1,
            f"{at}.mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{at}.mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{at}.mlp.down_proj.weight": matrix(HIDDEN, INNER),
        }
    return weights


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    return reduce(lambda text, pair: text.replace(*pair), GGUF_NAMES.items(), name)


def interleave(rows: Floats, heads: int) -> Floats:
    """llama.cpp's order of the rows of a head: 0, d/2, 1, d/2 + 1, ..."""
    half = HEAD_DIM // 2
    order = [head * HEAD_DIM + part * half + pair for head in range(heads) for pair in range(half) for part in (0, 1)]
    return rows[order]


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ bos_token }}own template")
    for name, tensor in hugging_face_weights().items():
        stored = tensor
        if "q_proj" in name:
            stored = interleave(tensor, HEADS)
        elif "k_proj" in name:
            stored = interleave(tensor, KV_HEADS)
        if "down_proj" in name:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def imported(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("imported")
    import_smollm2(gguf_file, directory)
    return directory


def test_the_weights_come_back(imported: Path) -> None:
    weights, original = load_weights(imported), hugging_face_weights()
    for index, layer in enumerate(weights.layers):
        at = f"model.layers.{index}"
        stacked = np.concatenate([original[f"{at}.self_attn.{part}_proj.weight"] for part in "qkv"])
        np.testing.assert_array_equal(layer.qkv.numpy(), stacked)
        kind = gguf.GGMLQuantizationType.Q8_0
        rounded = dequantize(quantize(original[f"{at}.mlp.down_proj.weight"], kind), kind)
        np.testing.assert_array_equal(layer.down.numpy(), rounded)
    np.testing.assert_array_equal(weights.embedding.numpy(), original["model.embed_tokens.weight"])


def test_the_shape_comes_back(imported: Path) -> None:
    shape = read_shape(imported)
    assert (shape.layers, shape.hidden, shape.inner, shape.heads, shape.kv_heads) == (3, 64, 96, 4, 2)
    assert (shape.rms_norm_eps, shape.rope_theta, shape.max_positions) == (1e-6, 5000.0, 128)
    assert shape.tied_embeddings
    assert shape.eos_token_ids == {2}


def test_the_tokenizer_comes_back(imported: Path) -> None:
    tokenizer = ModelTokenizer(imported)
    tokens = tokenizer.encode("<|im_start|>abcab 12", add_special_tokens=True)
    assert tokenizer.token_strings(tokens) == ["<|im_start|>", "abc", "ab", "Ġ", "1", "2"]
    assert tokenizer.decode(tokens) == "abcab 12"


def test_the_template_comes_back(imported: Path) -> None:
    assert load_chat_template(imported).render([], {}) == "<|im_start|>own template"


def test_the_files_may_be_read_by_others(imported: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in imported.iterdir())


def test_the_tiny_variant_keeps_shapes_and_tokenizer_but_not_weights(
    gguf_file: Path, imported: Path, tmp_path: Path
) -> None:
    import_tiny(gguf_file, tmp_path)
    tiny, real = load_weights(tmp_path), load_weights(imported)
    assert len(tiny.layers) == 2
    assert tiny.layers[0].qkv.shape == real.layers[0].qkv.shape
    assert (tmp_path / "tokenizer.json").read_bytes() == (imported / "tokenizer.json").read_bytes()
    assert "<tools>" in json.loads((tmp_path / "tokenizer_config.json").read_text())["chat_template"]


def test_the_tiny_variant_is_the_same_each_time(gguf_file: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        import_tiny(gguf_file, tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


def test_random_layers_let_the_context_decide(gguf_file: Path, tmp_path: Path) -> None:
    """Otherwise tied embeddings would make the tiny model repeat its last token for ever."""
    import_tiny(gguf_file, tmp_path)
    weights = load_weights(tmp_path)
    assert len({best(weights, [first, 7]) for first in range(3, 20)}) > 5


def best(weights: ModelWeights, tokens: list[int]) -> int:
    return int(torch.argmax(naive_logits(weights, tokens)[-1]))
