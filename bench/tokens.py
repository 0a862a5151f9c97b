"""What a request costs until its chain is known: parse, render, tokens, chain; for the first time and as next turn.

make bench-tokens                          about one minute
.venv/bin/python bench/tokens.py --quick   a tenth of the runs: numbers to look at, not to quote

Each run has a conversation of its own. *first*: its messages less the last two; nothing is known of them. *next turn*:
all of them; the turn before is known. Beside it, the same text whole through the libraries that tokenise; and what it
costs at the end of a request to hold its prompt against the earlier ones of its key (divergence_cost.py).

Times are microseconds of one thread that has nothing else to do; `cpu_us` is the processor's, the rest the clock's.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import tokenizers
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from backends.reference.model_files import ensure_model
from bench.conversations import SIZES, TEXTS, Size, chat_body, conversation, read_text
from bench.divergence_cost import divergence_costs, divergence_goals
from bench.resident import CACHES, Growth, growth_alone
from bench.result import RESULTS, Goal, write_result
from bench.tiktoken_twin import tiktoken_twin
from gateway.edge.reading import Arrival, read_request
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId
from prefix_index import Chain, prompt_root
from prefix_index.chain_memo import ChainMemo
from prefix_index.prompt import ModelText, load_model_text, renders_long

RUNS = {"2 KB": 400, "33 KB": 150, "400 KB": 30}
MOST_US = {"33 KB": 500.0, "400 KB": 3_000.0}
"""Of the processor, for a next turn."""
UNIQUE_PROMPTS = 1_000_000
DIVERGENCE_REQUESTS = 10_000
"""Of each kind, held against the earlier prompts of their key."""
BLOCK_SIZE = 16
TABLE_CHARS = 150
STAGES = ("parse", "render", "look up", "tokenise", "join", "chain")
PACKAGES = ("msgspec", "jinja2", "xxhash", "tokenizers", "tiktoken")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Standard output is the result's JSON; the table for people goes to standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the directory of the result")
    options = parser.parse_args(arguments)
    share = 0.1 if options.quick else 1.0
    console = Console(stderr=True)
    console.width = max(console.width, TABLE_CHARS)
    grown = [growth_alone(cache, round(UNIQUE_PROMPTS * share)) for cache in CACHES]
    bench = TokenBench()
    rows = []
    for size in SIZES:
        for text in TEXTS:
            rows += bench.rows(text, size, max(3, round(RUNS[size.name] * share)))
            console.print(f"{size.name} of {text}: measured", markup=False)
    about_noise = "the same 64 KB hashed 500 times: how much the machine varies by itself"
    noise: dict[str, object] = {"noise": about_noise, "us": _noise()}
    costs = divergence_costs(round(DIVERGENCE_REQUESTS * share))
    goals = [*goals_of(rows, grown), *divergence_goals(costs)]
    console.print(_table(rows))
    for cost in costs:
        console.print(cost.text(), markup=False)
    for goal in goals:
        console.print(goal.text(), markup=False)
    further: list[dict[str, object]] = [*(growth.row() for growth in grown), *(cost.row() for cost in costs), noise]
    path = write_result("tokens", [*rows, *further], goals, PACKAGES, options.to)
    print(path.read_text(encoding="utf-8"))
    console.print(f"written to {path}", soft_wrap=True)
    return 0


@dataclass(frozen=True, slots=True)
class Run:
    """One request on its way to a chain: nanoseconds of each stage and of the processor in all.

    `text` is what the template made of it, `new_bytes` the part of it that had to be tokenised.
    """

    stages_ns: tuple[int, ...]
    cpu_ns: int
    text: str
    new_bytes: int
    chain: Chain


class TokenBench:
    """The path of a request as the gateway's planner goes it, with one model and caches that live through all runs."""

    def __init__(self) -> None:
        """Loads SmolLM2's tokenizer and its own template; converts the model where it never was."""
        directory = ensure_model("smollm2")
        self.text: ModelText = load_model_text(directory)
        self.memo = ChainMemo()
        self._whole = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._twin = tiktoken_twin(directory / "tokenizer.json")
        self._rng = random.Random(1)

    def rows(self, text: str, size: Size, runs: int) -> list[dict[str, object]]:
        """The rows of one text and size: first and next turn, over `runs` conversations."""
        first, later, bodies, source = [], [], [], read_text(text)
        for _ in range(runs):
            messages = conversation(source, size, self._rng)
            first.append(self.run(chat_body(messages[:-2])))
            bodies.append(chat_body(messages))
            later.append(self.run(bodies[-1]))
        about = {
            "text": text,
            "size": size.name,
            "messages": 2 * size.turns,
            "body_bytes": round(median(map(len, bodies))),
            "new_bytes": round(median(run.new_bytes for run in later)),
            "tokens": round(median(run.chain.prompt_tokens for run in later)),
            "blocks": round(median(len(run.chain) for run in later)),
            "runs": runs,
        }
        whole = self._whole_text([run.text for run in later[:20]])
        return [
            {**about, "state": "first", **_figures(first)},
            {**about, "state": "next turn", **_figures(later), **whole},
        ]

    def run(self, body: bytes) -> Run:
        """Send one body down the path."""
        text, cpu_began, clock = self.text, time.process_time_ns(), time.perf_counter_ns
        times = [clock()]
        request = read_request(_arrival(), body)
        times.append(clock())
        renders_long(request.prompt)  # the planner asks; here all is done in one thread
        rendered = text.prompt_of(request.prompt)
        times.append(clock())
        encoding = text.begin_prompt(rendered, add_special_tokens=request.prompt.add_special_tokens)
        times.append(clock())
        encoding.compute()
        times.append(clock())
        tokens = encoding.finish()
        times.append(clock())
        root = prompt_root(model=request.model, adapter=None, kind=b"tokens", block_size=BLOCK_SIZE, salt=b"bench")
        chain = self.memo.chain_of(tokens, root, BLOCK_SIZE)
        times.append(clock())
        cpu_ns = time.process_time_ns() - cpu_began
        stages = tuple(after - before for before, after in pairwise(times))
        whole_text = "".join(piece for piece in rendered.pieces if isinstance(piece, str))
        return Run(stages, cpu_ns, whole_text, encoding.missing_bytes, chain)

    def _whole_text(self, texts: Sequence[str]) -> dict[str, object]:
        """The same texts, whole, through the libraries alone."""
        return {
            "whole_tokenizers_us": _spread([_timed(partial(_ids_of, self._whole, text)) for text in texts]),
            "whole_tiktoken_us": _spread(
                [_timed(partial(self._twin.encode, text, allowed_special="all")) for text in texts]
            ),
        }


def goals_of(rows: Sequence[Mapping[str, object]], grown: Sequence[Growth]) -> list[Goal]:
    """The worst text of each size, held against what is promised; and memory against its bound."""
    goals = []
    for size, most_us in MOST_US.items():
        worst = max(_median_cpu_us(row) for row in rows if row["size"] == size and row["state"] == "next turn")
        goals.append(Goal(f"next turn of {size}, median µs of the processor, worst text", worst, most_us, "<="))
    return [
        *goals,
        *(Goal(f"{one.cache}, memory grown / bound", one.grown_bytes / one.bound_bytes, 1.0, "<=") for one in grown),
    ]


def _median_cpu_us(row: Mapping[str, object]) -> float:
    cpu_us = row["cpu_us"]
    assert isinstance(cpu_us, dict), "a row of runs"
    return float(cpu_us["median"])


def _figures(runs: Sequence[Run]) -> dict[str, object]:
    stages = zip(*(run.stages_ns for run in runs), strict=True)
    return {
        "cpu_us": _spread([run.cpu_ns for run in runs]),
        "total_us": _spread([sum(run.stages_ns) for run in runs]),
        **{column(name): _spread(times_ns) for name, times_ns in zip(STAGES, stages, strict=True)},
    }


def column(name: str) -> str:
    """The key of a stage in a row."""
    return f"{name.replace(' ', '_')}_us"


def _spread(times_ns: Sequence[int]) -> dict[str, float]:
    """Nanoseconds in, microseconds out."""
    last_decile = quantiles(times_ns, n=10, method="inclusive")[-1]
    figures = {"min": min(times_ns), "median": median(times_ns), "p90": last_decile}
    return {name: round(figure / 1000, 1) for name, figure in figures.items()}


def _timed(work: Callable[[], object]) -> int:
    began = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - began


def _ids_of(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text).ids


def _noise() -> dict[str, float]:
    data = bytes(64 * 1024)
    return _spread([_timed(lambda: sha256(data)) for _ in range(500)])


def _arrival() -> Arrival:
    return Arrival(
        id=RequestId("bench"),
        tenant=Tenant(TenantId("bench"), KeyId("bench"), "bench", "00"),
        route=Route.CHAT,
        path=Route.CHAT.value,
        headers=(),
        started_s=0.0,
        opened_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def _table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Medians."""
    table = Table(title="bench-tokens; median µs", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head in ("size", "text", "state", "tokens", *STAGES, "total", "CPU", "tokenizers", "tiktoken"):
        table.add_column(head, justify="right", no_wrap=True)
    columns = (*STAGES, "total", "cpu", "whole_tokenizers", "whole_tiktoken")
    for row in rows:
        figures = [row.get(column(name)) for name in columns]
        cells = [f"{one['median']:,.0f}" if isinstance(one, dict) else "" for one in figures]
        table.add_row(str(row["size"]), str(row["text"]), str(row["state"]), f"{row['tokens']:,}", *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
