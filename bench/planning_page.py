"""The tables of docs/planning.md: twelve models on nine GPUs, by `backends.planning`. Nothing is measured.

python -m bench.planning_page          writes them between the marks of the page; a test compares the two
"""

import sys
from collections.abc import Iterator
from typing import Final

from backends.hardware import GPUS
from backends.models import CATALOGUE
from backends.planning import Asked, Bits, Limits, Machine, Plan, Request, fewest_gpus, readable
from backends.planning.machine import bytes_of
from bench.result import ROOT

PAGE: Final = ROOT / "docs" / "planning.md"
BEGIN: Final = "<!-- made by `python -m bench.planning_page`: begin -->"
END: Final = "<!-- end -->"

MODELS: Final = (
    *("qwen2.5-7b", "llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "qwen2.5-72b", "llama-3.1-405b"),
    *("gpt-oss-20b", "gpt-oss-120b", "mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v2", "deepseek-v3"),
)
KINDS: Final = ("a100-40g", "a100-80g", "l4", "l40s", "h100", "h100-pcie", "h200", "b200", "mi300x")
USUAL: Final = Request(prompt_tokens=2_000, output_tokens=300, cached_tokens=1_000)
KEPT: Final = Limits(ttft_p90_s=2.0, itl_s=0.05)
_CONTEXT: Final = 8_192


def tables() -> str:
    """All that stands between the marks."""
    parts = [
        "What a model takes:\n",
        *_sizes(),
        f"\nA prompt of {USUAL.prompt_tokens:,} tokens, half of it cached, an answer of {USUAL.output_tokens}; a first",
        f"token within {KEPT.ttft_p90_s:g} s for nine of ten and {KEPT.itl_s * 1e3:.0f} ms between tokens. *GPUs in a",
        "machine: output tokens/s of one GPU*, of the machine that makes most of them; `-` where none of 1 to 16",
        "keeps the limits. In 16 bits:\n",
        *_fleet(16),
        "\nIn 8 bits, weights, activations and KV cache:\n",
        *_fleet(8),
    ]
    return "\n".join(parts) + "\n"


def _sizes() -> Iterator[str]:
    yield f"| model | parameters | active | 16 bits | 8 | 4 | KV of a token, 16 bits | of {_CONTEXT:,} tokens |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in MODELS:
        model = CATALOGUE[name]
        widths: tuple[Bits, ...] = (16, 8, 4)
        sizes = " | ".join(f"{model.params * bytes_of(bits) / 1e9:,.1f} GB" for bits in widths)
        machine = Machine(model, GPUS["h100"])
        kept = f"{machine.kv_bytes(1):,.0f} B | {readable(machine.kv_bytes(_CONTEXT), 'B')}"
        yield f"| {name} | {model.params / 1e9:g} B | {model.active_params / 1e9:g} B | {sizes} | {kept} |"


def _fleet(bits: Bits) -> Iterator[str]:
    yield f"| | {' | '.join(KINDS)} |"
    yield f"|---|{'---|' * len(KINDS)}"
    for name in MODELS:
        found = (best_of(name, gpu, bits) for gpu in KINDS)
        yield f"| {name} | {' | '.join(_cell(one) for one in found)} |"


def best_of(model: str, gpu: str, bits: Bits) -> Plan | None:
    """The machine that makes most tokens with each of its GPUs: what a load of ten thousand requests a second takes."""
    return fewest_gpus(Machine(CATALOGUE[model], GPUS[gpu], 1, bits, bits), Asked(USUAL, KEPT, requests_per_s=10_000))


def _cell(one: Plan | None) -> str:
    if one is None or one.served is None:
        return "-"
    return f"{one.machine.gpus}: {one.served.output_tokens_per_s / one.machine.gpus:,.0f}"


def written_into(page: str) -> str:
    """The page with the tables as they are now. ValueError where it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks for the tables")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"written into {PAGE.relative_to(ROOT)}\n")
