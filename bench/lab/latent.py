"""What a token leaves in the cache, by the attention: small models of one size but for that, trained alike.

And what experts are for: more weights than a token passes.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import Final

import torch
from torch import Generator, Tensor

from backends.reference.latent import (
    LatentModel,
    LatentShape,
    PagedRows,
    bits_per_byte,
    busiest,
    decoded,
    mixture,
    new_model,
    trained,
)
from bench.lab.turns import median_of_turns
from bench.lab.types import Lab, Row, number
from bench.result import ROOT, Goal

STEPS: Final = 100
JUDGED_BYTES: Final = 16_385
CONTEXT: Final = 2048
BLOCK: Final = 16
TOKENS: Final = 512
"""Of a batch that passes experts."""
SHAPE: Final = LatentShape()
DENSE: Final = replace(SHAPE, experts=0, active=0, shared=SHAPE.shared + SHAPE.active * SHAPE.inner)
ATTENTIONS: Final = {
    "MHA": replace(SHAPE, kv_heads=SHAPE.heads),
    "GQA, 2 heads of keys": replace(SHAPE, kv_heads=2),
}
EXPANDED: Final = "MLA, expanded"
ABSORBED: Final = "MLA, absorbed"


def text() -> Tensor:
    """The bytes of this repository's documentation: enough of one kind for a small model."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    joined = b"\n\n".join(page.read_bytes() for page in pages if page.name != "lab.md")
    return torch.frombuffer(bytearray(joined), dtype=torch.uint8).long()


@cache
def learned(shape: LatentShape, steps: int) -> tuple[LatentModel, float]:
    """A model that was trained on all but the end of the text, on the CPU, and bits a byte of the end."""
    data = text()
    model = new_model(shape, Generator().manual_seed(0))
    trained(model, data[:-JUDGED_BYTES], steps=steps, dice=Generator().manual_seed(1))
    return model, bits_per_byte(model, data[-JUDGED_BYTES:])


def measure(lab: Lab) -> Iterable[Row]:
    """A row for each attention."""
    models = {name: learned(shape, STEPS) for name, shape in ATTENTIONS.items()}
    latent, bits = learned(SHAPE, STEPS)
    models |= {EXPANDED: (latent, bits), ABSORBED: (latent.absorbing(), bits)}
    steps_of = [_Decoding(model.on(lab.device), lab.clock) for model, _ in models.values()]
    seconds = median_of_turns(lab.rounds, *(partial(_Decoding.seconds, one) for one in steps_of))
    most = steps_of[0].cache.bytes_per_token
    for (name, (_, found)), step, taken in zip(models.items(), steps_of, seconds, strict=True):
        yield Row(
            name,
            {
                "cache, bytes a token": step.cache.bytes_per_token,
                "of MHA": f"{step.cache.bytes_per_token / most:.0%}",
                "bits a byte": found,
                f"a token behind {CONTEXT:,}, ms": taken * 1000,
            },
        )


class _Decoding:
    """One token behind a long context; what the cache holds does not matter for the time."""

    def __init__(self, model: LatentModel, clock: Callable[[], float]) -> None:
        blocks = CONTEXT // BLOCK + 1
        self._model = model
        self._clock = clock
        self._table = range(blocks)
        self.cache = PagedRows(model, blocks=blocks, block_size=BLOCK)
        quarter = [number % model.shape.vocab for number in range(CONTEXT // 4)]
        for at in range(0, CONTEXT, len(quarter)):
            decoded(model, quarter, at, self._table, self.cache)

    def seconds(self) -> float:
        began_s = self._clock()
        # Asking for the largest logit also waits for the device.
        decoded(self._model, [0], CONTEXT, self._table, self.cache).argmax().item()
        return self._clock() - began_s


def goals(rows: list[Row]) -> Iterable[Goal]:
    """Latents are smaller than the keys and values of two heads, and nothing is lost by it that would show here."""
    by_name = {row.technique: row.figures for row in rows}
    grouped, latent = by_name["GQA, 2 heads of keys"], by_name[ABSORBED]
    small, large = number(latent["cache, bytes a token"]), number(grouped["cache, bytes a token"])
    yield Goal("MLA: cache, times GQA's", small / large, 1.0, "<=")
    bits = number(latent["bits a byte"]) / number(by_name["MHA"]["bits a byte"])
    yield Goal("MLA: bits a byte, times MHA's", bits, 1.05, "<=")


def measure_experts(lab: Lab) -> Iterable[Row]:
    """The same computation a token, with and without experts to choose from."""
    for name, shape in (("dense", DENSE), (f"{SHAPE.active} of {SHAPE.experts} experts, and a shared one", SHAPE)):
        trained_model, bits = learned(shape, STEPS)
        model = trained_model.on(lab.device)
        x = torch.randn(TOKENS, shape.hidden, generator=Generator().manual_seed(2)).to(lab.device)
        runs = [partial(_pass_seconds, model, x, lab.clock, size) for size in (TOKENS, 1)]
        together, one_by_one = median_of_turns(lab.rounds, *runs)
        layer = model.layers[0].experts
        yield Row(
            name,
            {
                "weights": sum(one.numel() for one in model.tensors()),
                "of a token": _passed_weights(model),
                "bits a byte": bits,
                "busiest expert's share": f"{busiest(x, layer):.0%}" if shape.experts else None,
                "tokens/s of a layer, together": TOKENS / together,
                "one by one": TOKENS / one_by_one,
            },
        )


def _pass_seconds(model: LatentModel, x: Tensor, clock: Callable[[], float], size: int) -> float:
    began_s = clock()
    with torch.inference_mode():
        for part in torch.split(x, size):
            mixture(part, model.layers[0].experts).sum().item()
    return clock() - began_s


def _passed_weights(model: LatentModel) -> int:
    left_out = (model.shape.experts - model.shape.active) * 3 * model.shape.inner * model.shape.hidden
    return sum(one.numel() for one in model.tensors()) - left_out * model.shape.layers


def goals_of_experts(rows: list[Row]) -> Iterable[Goal]:
    """With as much computed a token, and after so few steps, more weights know no less; less than 5 % is noise."""
    dense, mixed = (number(row.figures["bits a byte"]) for row in rows)
    yield Goal("bits a byte, times a dense model's of the same computation", mixed / dense, 1.05, "<=")
