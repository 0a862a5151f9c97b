"""Weights of fewer bits: speed of prefill and decoding, memory, and what is left of the model's quality."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.lab.calibration import observe
from backends.reference.lab.gptq import gptq
from backends.reference.lab.grids import quantise
from backends.reference.lab.matrices import layer_bytes, with_matrices
from backends.reference.lab.products import int4_weight_only
from backends.reference.lab.quality import all_logits, common_start, greedy, judge, windows_of
from backends.reference.lab.recipes import recast
from backends.reference.lab.scaling import awq, rescaled, smooth
from backends.reference.types import WeightForm
from backends.reference.weights import ModelWeights
from bench.lab.turns import median_of_turns
from bench.lab.types import Figure, Lab, Row, number
from bench.result import Goal

GROUP: Final = 64
"""Of INT4: SmolLM2's 576 inputs are no multiple of 128. Its weights come from groups of 32 in four bits themselves."""
WINDOW: Final = 256
CALIBRATION_WINDOWS: Final = 20
JUDGED_WINDOWS: Final = 6
PROMPTS: Final = 4
ANSWER: Final = 32
PREFILL: Final = 256
BATCH: Final = 8


def measure(lab: Lab) -> Iterable[Row]:
    """One row a technique; the plain engine's is the first."""
    models = made(lab)
    judged = _Judged(lab)
    quality = {name: judged.quality(model) for name, model in models.items()}
    speeds = _speeds(lab, models)
    plain = speeds["float32 (plain)"]
    for name, model in models.items():
        mine = speeds[name]
        yield Row(
            name,
            {
                "layers, MB": layer_bytes(model) / 1e6,
                "prefill tokens/s": mine[0],
                "decode tokens/s": mine[1],
                "decode ×": mine[1] / plain[1],
                f"decode tokens/s, batch of {BATCH}": mine[2],
                **quality[name],
            },
        )


def made(lab: Lab) -> dict[str, ModelWeights]:
    """Every technique's model, the plain one first."""
    tokens = lab.tokenizer.encode(lab.calibration, add_special_tokens=False)
    book = observe(lab.weights, windows_of(tokens, WINDOW, CALIBRATION_WINDOWS))
    scaled = rescaled(lab.weights, book, awq(partial(quantise, bits=4, group=GROUP)))
    smoothed = rescaled(lab.weights, book, smooth)
    return {
        "float32 (plain)": lab.weights,
        "bfloat16": recast(lab.weights, WeightForm.BFLOAT16),
        "INT8 weight-only": recast(lab.weights, WeightForm.INT8),
        "W8A8": recast(lab.weights, WeightForm.W8A8),
        "W8A8, SmoothQuant": recast(smoothed, WeightForm.W8A8),
        f"INT4, groups of {GROUP}, nearest": _in_groups(lab.weights),
        f"INT4, groups of {GROUP}, AWQ": _in_groups(scaled),
        f"INT4, groups of {GROUP}, GPTQ": with_matrices(
            lab.weights, lambda layer, part, weight: int4_weight_only(gptq(weight, book[layer, part], 4, GROUP))
        ),
    }


def _in_groups(weights: ModelWeights) -> ModelWeights:
    return with_matrices(weights, lambda _layer, _part, weight: int4_weight_only(quantise(weight, 4, group=GROUP)))


class _Judged:
    """What the plain model says, once, for all the others."""

    def __init__(self, lab: Lab) -> None:
        tokens = lab.tokenizer.encode(lab.text, add_special_tokens=False)
        self._windows = windows_of(tokens, WINDOW, JUDGED_WINDOWS)
        self._prompts = [window[: WINDOW // 4] for window in self._windows[:PROMPTS]]
        self._plain = list(all_logits(lab.weights, self._windows))
        self._answers = [greedy(lab.weights, prompt, ANSWER) for prompt in self._prompts]

    def quality(self, model: ModelWeights) -> Mapping[str, Figure]:
        """What is left of it in `model`."""
        found = judge(all_logits(model, self._windows), self._plain, self._windows)
        answers = [greedy(model, prompt, ANSWER) for prompt in self._prompts]
        same = [common_start(mine, plain) for mine, plain in zip(answers, self._answers, strict=True)]
        return {
            "perplexity": found.perplexity,
            "KL, nats": found.divergence_nats,
            "same next token": f"{found.agreement:.1%}",
            f"greedy tokens the same, of {ANSWER}": sum(same) / len(same),
        }


def _speeds(lab: Lab, models: Mapping[str, ModelWeights]) -> dict[str, tuple[float, float, float]]:
    """Tokens a second of prefill, of decoding alone, and of decoding in a batch; all models in turns."""
    runs = {name: _Runs(model, lab.clock) for name, model in models.items()}
    kinds = [
        median_of_turns(lab.rounds, *(getattr(run, kind) for run in runs.values()))
        for kind in ("prefill", "alone", "batch")
    ]
    return {name: (one[0], one[1], one[2]) for name, one in zip(runs, zip(*kinds, strict=True), strict=True)}


class _Runs:
    """One model with a cache of its own, timed."""

    _STEPS: Final = 8

    def __init__(self, weights: ModelWeights, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._decoder = PagedDecoder(weights, kv_blocks=64 * BATCH, block_size=16, max_positions=1024)

    def prefill(self) -> float:
        chunk = Chunk(range(1000, 1000 + PREFILL), 0, range(PREFILL // 16), wants_logits=True)
        return PREFILL / self._seconds([[chunk]])

    def alone(self) -> float:
        return self._decode(1)

    def batch(self) -> float:
        return self._decode(BATCH)

    def _decode(self, requests: int) -> float:
        steps = [
            [
                Chunk((1000 + at,), at, range(64 * request, 64 * request + 64), wants_logits=True)
                for request in range(requests)
            ]
            for at in range(64, 64 + self._STEPS)
        ]
        return requests * self._STEPS / self._seconds(steps)

    def _seconds(self, steps: Iterable[list[Chunk]]) -> float:
        began_s = self._clock()
        for chunks in steps:
            # The largest logit is what a step is for; asking for it also waits for the device.
            self._decoder.forward(chunks).argmax(-1).tolist()
        return self._clock() - began_s


def goals(rows: list[Row]) -> Iterable[Goal]:
    """Eight bits cost next to nothing, four with calibration less than without, and both decode faster."""
    by_name = {row.technique: row.figures for row in rows}

    def figure(name: str, key: str) -> float:
        return number(by_name[name][key])

    plain = figure("float32 (plain)", "perplexity")
    nearest = figure(f"INT4, groups of {GROUP}, nearest", "KL, nats")
    yield Goal("INT8: perplexity, times plain", figure("INT8 weight-only", "perplexity") / plain, 1.01, "<=")
    yield Goal(
        "W8A8, SmoothQuant: perplexity, times plain", figure("W8A8, SmoothQuant", "perplexity") / plain, 1.05, "<="
    )
    for way in ("AWQ", "GPTQ"):
        value = figure(f"INT4, groups of {GROUP}, {way}", "KL, nats") / nearest
        yield Goal(f"INT4, {way}: divergence from plain, times that of rounding to the nearest", value, 1.0, "<=")
    for name in ("INT8 weight-only", f"INT4, groups of {GROUP}, GPTQ"):
        yield Goal(f"{name}: decoding, times plain", figure(name, "decode ×"), 1.0, ">=")
