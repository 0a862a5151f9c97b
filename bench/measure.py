"""`prefixgate measure` beside a public load generator, GuideLLM: the same prompts in the same order, each on an engine
of its own that has just been started, simulated and slow enough that a client's own milliseconds are few beside it.

    one client            nothing waits: first tokens are prefills, and the rest are steps
    four clients          lengths vary, prompts hold up answers
    evenly, 0.8 a second  an open loop

Held against each other: mean TTFT, mean ITL, requests and output tokens a second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from backends.reference.model_files import ensure_model
from bench.measure_situations import measured, simulated_engine
from bench.result import Goal, write_result
from gateway.measuring.shapes import Shape, shaped
from gateway.measuring.wording import Wording, WordTokens
from gateway.sim.loads.arrivals import take

APART: Final = 0.05
"""Of a figure: two generators that send the same are not further from each other."""
_OVERHEAD_S: Final = 120.0
"""GuideLLM reads its tokenizer first, and writes its results."""
_SPEED: Final = 0.25
"""Seconds of the engine in one of ours."""


@dataclass(frozen=True, slots=True)
class Load:
    """How the corpus comes: so many clients, or so many requests a second. `times`: how much longer than the others;
    GuideLLM leaves out what is under way at the end, which is more where there are more clients."""

    name: str
    clients: int | None = None
    rate_per_s: float | None = None
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a generator saw, means."""

    ttft_s: float
    itl_s: float
    requests_per_s: float
    output_tokens_per_s: float


LOADS: Final = (
    Load("one client", clients=1),
    Load("four clients", clients=4, times=2.5),
    Load("evenly, 0.8 a second", rate_per_s=0.8),
)
_SHAPE: Final = Shape(prompt_tokens=2000, output_tokens=48, cv=0.3)
_LINES: Final = 400
_TOKENS_A_WORD: Final = 1.9
"""Of the model whose tokenizer is used; lengths need only be about right, since they are the same for both."""


def write_corpus(path: Path) -> None:
    """Prompts that share nothing, with the fields that either generator reads."""
    wording = Wording("any", WordTokens(_TOKENS_A_WORD))
    with path.open("w") as out:
        for request in take(shaped(_SHAPE, seed=1), _LINES).requests:
            tokens = request.output_tokens
            line = {"prompt": wording.text(request, "bench"), "max_tokens": tokens, "output_tokens_count": tokens}
            out.write(json.dumps(line) + "\n")


def ours(url: str, corpus: Path, load: Load, seconds: float) -> Figures:
    """By the command, as a user would; its first tenth is a warm-up."""
    how = ("--clients", str(load.clients)) if load.rate_per_s is None else ("--rate", str(load.rate_per_s), "--cv", "0")
    warm = ("--warm", str(seconds / 10), "--seconds", str(seconds * 0.9))
    (level,) = measured(url, "--corpus", str(corpus), *how, *warm)["levels"]
    return Figures(level["ttft"]["mean"], level["itl"]["mean"], level["requests_per_s"], level["output_tokens_per_s"])


def guidellm(program: Path, url: str, corpus: Path, load: Load, seconds: float) -> Figures:
    """By GuideLLM's command; its first tenth is a warm-up."""
    how = ("concurrent", load.clients) if load.rate_per_s is None else ("constant", load.rate_per_s)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "benchmarks.json"
        command = (
            *(str(program), "benchmark", "run", "--target", url, "--processor", str(ensure_model("smollm2"))),
            *("--data", str(corpus), "--rate-type", how[0], "--rate", str(how[1])),
            *("--max-seconds", str(seconds), "--warmup-percent", "0.1"),
            *("--disable-progress", "--disable-console-outputs", "--output-path", str(out)),
        )
        done = subprocess.run(
            command,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "GUIDELLM__PREFERRED_ROUTE": "chat_completions"},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + _OVERHEAD_S,
        )
        if done.returncode or not out.exists():
            raise SystemExit(f"guidellm: {done.stderr[-2000:]}")
        (run,) = json.loads(out.read_text())["benchmarks"]
    return figures_of(run["metrics"])


def figures_of(metrics: Mapping[str, Any]) -> Figures:
    """Of GuideLLM's: what it calls inter-token latency is, as ours, of the tokens after the first."""
    means = {name: one["successful"]["mean"] for name, one in metrics.items()}
    return Figures(
        means["time_to_first_token_ms"] / 1e3,
        means["inter_token_latency_ms"] / 1e3,
        means["requests_per_second"],
        means["output_tokens_per_second"],
    )


def compared(program: Path, corpus: Path, seconds: float) -> tuple[list[dict[str, object]], list[Goal]]:
    """A row for each load and generator, and how far apart they are in each figure."""
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    for load in LOADS:
        with simulated_engine(_SPEED) as url:
            by_us = asdict(ours(url, corpus, load, seconds * load.times))
        with simulated_engine(_SPEED) as url:
            by_guidellm = asdict(guidellm(program, url, corpus, load, seconds * load.times))
        for by, figures in (("prefixgate measure", by_us), ("guidellm", by_guidellm)):
            rows.append({"load": load.name, "by": by, **figures})
            print(rows[-1], flush=True)
        for name in by_us:
            apart = round(abs(by_us[name] / by_guidellm[name] - 1), 4)
            goals.append(Goal(f"{load.name}: {name}, apart", apart, APART, "<="))
    return rows, goals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it, print and write it; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description=__doc__)
    parser.add_argument("--guidellm", type=Path, required=True, help="its program")
    parser.add_argument("--seconds", type=float, default=50.0, help="of each load and generator")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus)
        rows, goals = compared(options.guidellm, corpus, options.seconds)
    told = subprocess.run((options.guidellm, "--version"), capture_output=True, text=True, check=False).stdout
    write_result("measure", [*rows, {"guidellm": told.split()[-1]}], goals, ("uvloop",))
    for goal in goals:
        print(goal.text())
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
