"""Engines by name. Each constant is an expression of what is known, and says whether that was measured or assumed.

Assumed for all accelerators: decoding reads memory at 0.7 of the datasheet's bandwidth; reading weights and KV cache is
all that a decode step costs; a start takes as long as loading the weights usually does. The quadratic term counts each
pair of a new token and a prompt token, so a cold prompt, half of whose pairs are masked, is charged for both halves.
"""

from collections.abc import Mapping
from types import MappingProxyType

from backends.perf import PerfModel
from backends.simulated.types import USUAL_BLOCK_TOKENS, USUAL_CAPACITY_TOKENS, EngineSpec

GiB = 1024**3

H100_FLOPS = 989e12
"""Dense bf16, datasheet of the SXM module."""

H100_BYTES_PER_S = 0.7 * 3.35e12
"""Datasheet bandwidth; the share of it is assumed, and checked against a published run below."""

H100_BYTES = 79.6 * GiB
"""What a driver reports of the 80 GB."""

PCIE5_BYTES_PER_S = 50e9
"""Assumed: the middle of what copies from host memory reach over 16 lanes."""

RDMA_BYTES_PER_S = 44e9
"""Assumed: a 400 Gbit/s network, nine tenths of it used."""


def _qwen3_32b_2xh100() -> EngineSpec:
    """Qwen3-32B in bf16 over two H100: one pod of the benchmark that llm-d publishes for precise prefix routing.

    Check: in its stage of 60 requests/s a pod had 14.87 / 8 requests/s * 63.3 s = 118 requests of 7,584 + 937 / 2
    tokens running, and 63 ms between tokens. These constants give 67 ms.
    """
    params, layers, heads, kv_heads, head = 32.8e9, 64, 64, 8, 128
    kv_bytes_per_token = 2 * 2 * layers * kv_heads * head
    pod_bytes_per_s = 2 * H100_BYTES_PER_S
    return EngineSpec(
        # The benchmark's figure; two H100 at 0.9 less the weights leave 2 * 71.6 - 61 GiB; this is 75 of them.
        capacity_blocks=USUAL_CAPACITY_TOKENS // USUAL_BLOCK_TOKENS,
        perf=PerfModel(
            base_s=0.02,  # assumed
            # The benchmark's figure: 0.68 of the peak of both. With the quadratic term a cold prompt of 7,200 tokens
            # goes at about 15,500 tokens/s, near the 15,928 that llm-d's scheduler takes for granted.
            prefill_tokens_per_s=20_480.0,
            quad_s_per_token2=4 * layers * heads * head / (0.6 * 2 * H100_FLOPS),
            itl_s=2 * params / pod_bytes_per_s,
            itl_s_per_context_token=kv_bytes_per_token / pod_bytes_per_s,
        ),
        host_tokens_per_s=2 * PCIE5_BYTES_PER_S / kv_bytes_per_token,
        transfer_tokens_per_s=RDMA_BYTES_PER_S / kv_bytes_per_token,
        start_s=120.0,  # assumed
    )


def _llama_8b_h100() -> EngineSpec:
    """Llama-3.1-8B in bf16 on one H100. Nothing of it is fitted to a measurement: datasheet and usual shares of it.

    Near what is published: NVIDIA's NIM states 4.6 ms between tokens for one request and 5.9 ms for 50 (its precision
    and lengths are not known here); these give 6.8 ms and, for 50 contexts of 500 tokens, 8.2 ms.
    """
    params, layers, heads, kv_heads, head = 8.03e9, 32, 32, 8, 128
    kv_bytes_per_token = 2 * 2 * layers * kv_heads * head
    flops = 0.45 * H100_FLOPS  # assumed share; long prompts reach 0.35 to 0.6
    return EngineSpec(
        # 0.9 of the memory (vLLM's default), less the weights, less 2 GiB of activations (assumed).
        capacity_blocks=int((0.9 * H100_BYTES - 2 * params - 2 * GiB) / kv_bytes_per_token) // 16,
        perf=PerfModel(
            base_s=0.02,  # assumed
            prefill_tokens_per_s=flops / (2 * params),
            quad_s_per_token2=4 * layers * heads * head / flops,
            itl_s=2 * params / H100_BYTES_PER_S,
            itl_s_per_context_token=kv_bytes_per_token / H100_BYTES_PER_S,
        ),
        host_tokens_per_s=PCIE5_BYTES_PER_S / kv_bytes_per_token,
        transfer_tokens_per_s=RDMA_BYTES_PER_S / kv_bytes_per_token,
        start_s=60.0,  # assumed
    )


def _reference_cpu() -> EngineSpec:
    """SmolLM2-135M in fp32 under vLLM 0.32 on two cores, blocks of 32: measured on a machine with other load.

    Check: 2,409 tokens cold took 8.80 s (8.21 and 9.39); 11 of 2,411 uncached 0.125 s (0.118 and 0.132); answers came
    at 15 to 20 tokens/s.
    """
    params, layers, heads, head = 134.5e6, 30, 9, 64
    cold_tokens, cold_s = 2409, 8.796
    warm_tokens, warm_prompt_tokens, warm_s = 11, 2411, 0.125
    pair_flops = 4 * layers * heads * head
    # The speed at which the model's formula gives the measured difference of a cold and a warm prompt.
    cold_flops = cold_tokens * (2 * params + pair_flops * cold_tokens)
    warm_flops = warm_tokens * (2 * params + pair_flops * warm_prompt_tokens)
    flops = (cold_flops - warm_flops) / (cold_s - warm_s)
    return EngineSpec(
        block_size=32,
        capacity_blocks=23_296 // 32,  # what 1 GiB held, as reported
        perf=PerfModel(
            base_s=warm_s - warm_flops / flops,
            prefill_tokens_per_s=flops / (2 * params),
            quad_s_per_token2=pair_flops / flops,
            itl_s=1 / 17.5,
        ),
        chunk_tokens=2048,  # assumed
        max_running=8,  # as it was started
        start_s=68.0,  # 56 to 80 s
    )


PRESETS: Mapping[str, EngineSpec] = MappingProxyType(
    {
        "qwen3_32b_2xh100": _qwen3_32b_2xh100(),
        "llama_8b_h100": _llama_8b_h100(),
        "reference_cpu": _reference_cpu(),
    }
)
"""Engine specs by name. For other block sizes use `dataclasses.replace` on block size and capacity together."""
