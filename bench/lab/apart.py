"""Prefill and decode apart: what it takes to carry a prompt from one engine to another, beside computing it there."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from backends.reference.apart import Carried, adopted, copied
from backends.reference.engine import Engine
from backends.reference.sequence import Sequence
from backends.reference.types import EngineConfig, GenerationRequest, RequestId, SamplingParams
from bench.lab.asked import PATIENCE_S, answered, running
from bench.lab.types import Lab, Row, number
from bench.result import Goal

PROMPTS: Final = (128, 512)
OUTPUT: Final = 8
GREEDY: Final = SamplingParams(OUTPUT, temperature=0, ignore_eos=True)


def measure(lab: Lab) -> Iterable[Row]:
    """A row for each length of prompt: computed at one engine, and carried to another in one process."""
    tokens = lab.tokenizer.encode(lab.text, add_special_tokens=False)
    config = EngineConfig(model="", kv_blocks=64)
    with ExitStack() as stack:
        first, second = (stack.enter_context(running(lab, config)) for _ in range(2))
        for length in PROMPTS:
            request = GenerationRequest(RequestId("carried"), tuple(tokens[:length]), replace(GREEDY, max_tokens=1))
            taken = [_carried(first, second, request, lab.clock) for _ in range(max(lab.rounds // 2, 1))]
            yield Row(
                f"{length} tokens",
                {
                    "carried, MB": median(one.carried_bytes for one in taken) / 1e6,
                    "first token, computed here, ms": median(one.computed_s for one in taken) * 1000,
                    "carried, ms": median(one.carried_s for one in taken) * 1000,
                    "first token behind it, ms": median(one.behind_s for one in taken) * 1000,
                    "same tokens": "yes" if all(one.is_same for one in taken) else "no",
                },
            )


@dataclass(frozen=True, slots=True)
class _Taken:
    """To the first token at one engine, and to carry its prompt to another and to the first token there; whether both
    answers are the same."""

    computed_s: float
    carried_s: float
    behind_s: float
    carried_bytes: int
    is_same: bool


def _carried(first: Engine, second: Engine, request: GenerationRequest, clock: Callable[[], float]) -> _Taken:
    for engine in (first, second):
        assert engine.reset_prefix_cache().result(PATIENCE_S)
    alone = answered(first, request.prompt_tokens, GREEDY, clock)
    prompt = Sequence(request, first.config.block_size)
    began_s = clock()
    data = first.between_steps(lambda cache: copied(cache, prompt)).result(PATIENCE_S).to_bytes()
    carried = Carried.from_bytes(data)
    second.between_steps(lambda cache: adopted(cache, prompt, carried)).result(PATIENCE_S)
    carried_s = clock() - began_s
    apart = answered(second, request.prompt_tokens, GREEDY, clock)
    return _Taken(alone.ttft_s, carried_s, apart.ttft_s, len(data), alone.tokens == apart.tokens)


def goals(rows: list[Row]) -> Iterable[Goal]:
    """No token may change, and carrying costs less than computing."""
    yield Goal("rows whose tokens are not one engine's", sum(r.figures["same tokens"] != "yes" for r in rows), 0, "<=")
    longest = rows[-1].figures
    share = number(longest["carried, ms"]) / number(longest["first token, computed here, ms"])
    yield Goal("carrying the longest prompt, times computing it", share, 0.5, "<=")
