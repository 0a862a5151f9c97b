"""Drafts: how many are kept, what a step gives then, and whether that is faster, where answers quote and where not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from backends.reference.engine import Engine
from backends.reference.types import DraftMethod, EngineConfig, SamplingParams, SpeculationConfig
from bench.lab.asked import Answered, answered, running
from bench.lab.turns import median_of_turns
from bench.lab.types import Lab, Row, number
from bench.result import Goal

OUTPUT: Final = 32
PROMPTS: Final = 2
PARAGRAPH: Final = 96
"""Tokens of a text that is to be quoted."""
ROUNDS: Final = 2
PLAIN: Final = "plain"
LOOKUP: Final = "looked up, up to 6"
GREEDY: Final = SamplingParams(OUTPUT, temperature=0, ignore_eos=True)


def techniques(lab: Lab) -> dict[str, SpeculationConfig | None]:
    """Who drafts, by name."""
    layers = lab.weights.shape.layers
    models = {
        f"first {count} of {layers} layers, up to 3": SpeculationConfig(DraftMethod.MODEL, tokens=3, layers=count)
        for count in (max(layers // 5, 1), layers * 4 // 5)
    }
    return {PLAIN: None, LOOKUP: SpeculationConfig(DraftMethod.LOOKUP, tokens=6), **models}


def prompts(lab: Lab) -> dict[str, list[list[int]]]:
    """Texts that a model goes on with by quoting them, and texts that it goes on with by itself."""
    tokens = lab.tokenizer.encode(lab.text, add_special_tokens=False)
    parts = [tokens[at * PARAGRAPH : (at + 1) * PARAGRAPH] for at in range(PROMPTS)]
    return {"quoting": [[*part, *part, *part[: PARAGRAPH // 4]] for part in parts], "free": parts}


@dataclass(slots=True)
class _Contender:
    """One engine over the prompts of one kind, and the last answers that it gave."""

    engine: Engine
    prompts: Sequence[Sequence[int]]
    clock: Callable[[], float]
    answers: tuple[Answered, ...] = ()

    def tokens_per_s(self) -> float:
        """Of decoding: the first token of each answer is the prompt's."""
        self.answers = tuple(answered(self.engine, prompt, GREEDY, self.clock) for prompt in self.prompts)
        return len(self.answers) * (OUTPUT - 1) / sum(one.decode_s for one in self.answers)

    def tokens_per_step(self) -> float:
        """Output tokens by steps that gave any: each gives one beside what was accepted."""
        output = sum(one.receipt.completion_tokens for one in self.answers)
        return output / (output - sum(one.receipt.accepted_tokens or 0 for one in self.answers))

    def accepted_share(self) -> float | None:
        """The share of drafted tokens that were kept; None where nothing was drafted."""
        drafted = sum(one.receipt.drafted_tokens or 0 for one in self.answers)
        return sum(one.receipt.accepted_tokens or 0 for one in self.answers) / drafted if drafted else None


@contextmanager
def _engines(lab: Lab) -> Iterator[dict[str, Engine]]:
    with ExitStack() as stack:
        config = EngineConfig(model="", kv_blocks=64)
        yield {
            name: stack.enter_context(running(lab, replace(config, speculation=wanted)))
            for name, wanted in techniques(lab).items()
        }


def measure(lab: Lab) -> Iterable[Row]:
    """A row for each technique and kind of text."""
    for kind, some in prompts(lab).items():
        with _engines(lab) as engines:
            contenders = {name: _Contender(engine, some, lab.clock) for name, engine in engines.items()}
            turns: list[Callable[[], float]] = [partial(_Contender.tokens_per_s, one) for one in contenders.values()]
            speeds = median_of_turns(min(lab.rounds, ROUNDS), *turns)
        plain = contenders[PLAIN]
        for (name, one), speed in zip(contenders.items(), speeds, strict=True):
            accepted = one.accepted_share()
            same = [mine.tokens for mine in one.answers] == [other.tokens for other in plain.answers]
            yield Row(
                name,
                {
                    "text": kind,
                    "drafts kept": None if accepted is None else f"{accepted:.0%}",
                    "tokens a step": one.tokens_per_step(),
                    "tokens/s": speed,
                    "×": speed / speeds[0],
                    "same tokens": "yes" if same else "no",
                },
            )


def goals(rows: list[Row]) -> Iterable[Goal]:
    """No token may change, and what is looked up pays where answers quote."""
    changed = sum(row.figures["same tokens"] != "yes" for row in rows)
    yield Goal("rows whose greedy tokens are not the plain engine's", changed, 0, "<=")
    for row in rows:
        if row.technique == LOOKUP and row.figures["text"] == "quoting":
            yield Goal("looked up where answers quote, times plain", number(row.figures["×"]), 1.5, ">=")
