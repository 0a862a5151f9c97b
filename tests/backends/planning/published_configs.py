"""What the `config.json` of the catalogue's models says of their sizes, as they were published; and of a few others."""

from typing import Final


def llama(layers: int, hidden: int, inner: int, heads: int, kv_heads: int, **more: object) -> dict[str, object]:
    """A dense model with a gate, without windows."""
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        **more,
    }


def qwen(
    model_type: str, layers: int, hidden: int, inner: int, heads: int, kv_heads: int, **more: object
) -> dict[str, object]:
    """Windows are there, and turned off."""
    windows = {"use_sliding_window": False, "sliding_window": 131_072, "max_window_layers": layers}
    return llama(layers, hidden, inner, heads, kv_heads, model_type=model_type, **windows, **more)


def deepseek(version: int, layers: int, hidden: int, inner: int, **more: object) -> dict[str, object]:
    return {
        "model_type": f"deepseek_v{version}",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_layer_freq": 1,
        "max_position_embeddings": 163_840,
        "tie_word_embeddings": False,
        **more,
    }


def gpt_oss(layers: int, experts: int) -> dict[str, object]:
    return {
        "model_type": "gpt_oss",
        "num_hidden_layers": layers,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "vocab_size": 201_088,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "mxfp4"},
    }


PUBLISHED: Final[dict[str, dict[str, object]]] = {
    "smollm2-135m": llama(
        30, 576, 1536, 9, 3, vocab_size=49_152, max_position_embeddings=8_192, tie_word_embeddings=True
    ),
    "opt-13b": {
        "model_type": "opt",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "word_embed_proj_dim": 5120,
        "ffn_dim": 20_480,
        "num_attention_heads": 40,
        "vocab_size": 50_272,
        "max_position_embeddings": 2_048,
    },
    "llama-2-7b": llama(32, 4096, 11_008, 32, 32, vocab_size=32_000, max_position_embeddings=4_096),
    "llama-3.1-8b": llama(32, 4096, 14_336, 32, 8),
    "llama-3.1-70b": llama(80, 8192, 28_672, 64, 8),
    "llama-3.1-405b": llama(126, 16_384, 53_248, 128, 8),
    "qwen2.5-7b": qwen("qwen2", 28, 3584, 18_944, 28, 4, vocab_size=152_064),
    "qwen2.5-72b": qwen("qwen2", 80, 8192, 29_568, 64, 8, vocab_size=152_064),
    "qwen3-8b": qwen(
        "qwen3", 36, 4096, 12_288, 32, 8, head_dim=128, vocab_size=151_936, max_position_embeddings=40_960
    ),
    "qwen3-32b": qwen(
        "qwen3", 64, 5120, 25_600, 64, 8, head_dim=128, vocab_size=151_936, max_position_embeddings=40_960
    ),
    "qwen3-235b-a22b": qwen(
        *("qwen3_moe", 94, 4096, 12_288, 64, 4),
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=1536,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        vocab_size=151_936,
        max_position_embeddings=40_960,
    ),
    "mixtral-8x7b": llama(
        *(32, 4096, 14_336, 32, 8),
        model_type="mixtral",
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
        vocab_size=32_000,
        max_position_embeddings=32_768,
    ),
    "deepseek-67b": llama(95, 8192, 22_016, 64, 8, vocab_size=102_400, max_position_embeddings=4_096),
    "deepseek-v2": deepseek(
        *(2, 60, 5120, 12_288),
        n_routed_experts=160,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1536,
        first_k_dense_replace=1,
        vocab_size=102_400,
    ),
    "deepseek-v3": deepseek(
        *(3, 61, 7168, 18_432),
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        num_nextn_predict_layers=1,
        vocab_size=129_280,
        quantization_config={"quant_method": "fp8"},
    ),
    "gpt-oss-20b": gpt_oss(24, 32),
    "gpt-oss-120b": gpt_oss(36, 128),
}
"""By the catalogue's names."""

GEMMA_3_27B: Final[dict[str, object]] = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21_504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    },
}
"""Pictures, five layers of six with a window, one embedding at both ends."""
