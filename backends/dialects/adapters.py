"""What engines say of the LoRA adapters that they have at hand. Pure.

    vLLM    lora_requests_info{max_lora="4", running_lora_adapters="a,b", waiting_lora_adapters="c"} 1796040000
    SGLang  lora_pool_slots_total 8, lora_pool_slots_used 3         how many, not which

vLLM's gauge has a new series for each combination of names, and keeps the old ones; the value is the time at which it
was set, so the newest one counts. An adapter that waits will have been loaded before whatever comes now.
"""

from typing import Final

from backends.dialects.metrics import whole_number
from backends.dialects.types import Samples
from backends.types import AdapterSample

VLLM_ADAPTERS: Final = "vllm:lora_requests_info"
SGLANG_SLOTS: Final = "sglang:lora_pool_slots_total"
SGLANG_USED: Final = "sglang:lora_pool_slots_used"


def of_vllm(samples: Samples) -> AdapterSample | None:
    """None where adapters are off, or no request has come yet."""
    series = samples.get(VLLM_ADAPTERS)
    if not series:
        return None
    newest, _ = max(series, key=lambda one: one[1])
    named = (newest.get(label, "") for label in ("running_lora_adapters", "waiting_lora_adapters"))
    names = frozenset(name.strip() for text in named for name in text.split(",") if name.strip())
    return AdapterSample(slots=whole_number(newest.get("max_lora")), in_use=names)


def of_sglang(samples: Samples) -> AdapterSample | None:
    """The pool of one rank: ranks that hold the same adapters count once. None where adapters are off."""
    slots = [value for _, value in samples.get(SGLANG_SLOTS, ())]
    if not slots:
        return None
    used = [value for _, value in samples.get(SGLANG_USED, ())]
    return AdapterSample(slots=whole_number(max(slots)), used=whole_number(max(used)) or 0 if used else None)
