"""`make bench-perf`: the fitted speed of two real engines against what they take when asked directly.

    gateway ──in turn──> engine-0, engine-1      mixed lengths, a third with a prefix that is cached
    we ────────────────> engine-0, engine-1      between rounds, alone: three lengths, nothing cached; their medians
                                                 are the truth

Then engine-0 is stopped two thirds of the time (SIGSTOP, SIGCONT), and we look how long the fit takes to follow. Both
engines and their truth are measured in the same minutes, since what else the machine does changes both: each direct
answer is held against what the fit said just before, and medians are those of the later half of a phase.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Final, TypeVar

import httpx
import yaml

from backends import PerfModel
from backends.dialects.metrics import scan
from backends.reference.model_files import ensure_model
from bench.result import Goal, write_result
from gateway.demo.processes import clean_environment, started_process

T = TypeVar("T")
MODEL: Final = "tiny"
LENGTHS: Final = (100, 400, 1000)
"""Words of the prompts that are asked for directly."""
ROUND: Final = 12
REQUESTS: Final = 400
RUNS_S, RESTS_S = 0.01, 0.02
WITHIN: Final = 0.1
_WORDS: Final = (
    "the",
    "a",
    "well",
    "road",
    "keeper",
    "night",
    "star",
    "sand",
    "water",
    "name",
    "letter",
    "song",
    "wall",
)
_METRICS: Final = {
    "base_s": "prefixgate_perf_base_seconds",
    "prefill_tokens_per_s": "prefixgate_perf_prefill_tokens_per_second",
    "quad_s_per_token2": "prefixgate_perf_quadratic_seconds",
    "itl_s": "prefixgate_perf_itl_seconds",
}
_CORES: Final = sorted(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Asked:
    """One direct request: its prompt's tokens, and its times in seconds."""

    tokens: int
    ttft_s: float
    itl_s: float


@dataclass
class Truth:
    """What an engine took when asked directly, by length."""

    asked: dict[int, list[Asked]] = field(default_factory=dict)
    foretold: list[float] = field(default_factory=list)
    """What the fit said just before, as a multiple of what was measured then."""

    def ttft_s(self, length: int) -> float:
        """Seconds to the first token of prompts of so many words."""
        return median(one.ttft_s for one in _later_half(self.asked[length]))

    def tokens(self, length: int) -> int:
        """Of prompts of so many words."""
        return round(median(one.tokens for one in self.asked[length]))

    @property
    def itl_s(self) -> float:
        """Seconds between two tokens."""
        return median(one.itl_s for several in self.asked.values() for one in _later_half(several))

    @property
    def tokens_per_s(self) -> float:
        """From the shortest prompt to the longest: tokens more by seconds more."""
        more_s = self.ttft_s(LENGTHS[-1]) - self.ttft_s(LENGTHS[0])
        return (self.tokens(LENGTHS[-1]) - self.tokens(LENGTHS[0])) / more_s


@dataclass(frozen=True, slots=True)
class Moment:
    """The fits at a time of a phase."""

    at_s: float
    requests: int
    fits: Mapping[str, PerfModel]


class Bench:
    """Traffic through a gateway, and direct questions between."""

    def __init__(self, http: httpx.AsyncClient, gateway: str, engines: Mapping[str, str], at_once: int) -> None:
        self._http = http
        self._gateway = gateway
        self._at_once = at_once
        self._engines = engines
        self._rng = random.Random(11)
        self._earlier: list[str] = []

    async def phase(self, requests: int) -> tuple[dict[str, Truth], list[Moment]]:
        """Rounds through the gateway until there were so many requests, each followed by direct ones."""
        truths, moments = {name: Truth() for name in self._engines}, []
        begun_s = time.monotonic()
        for done in range(ROUND, requests + 1, ROUND):
            left = [self._prompt() for _ in range(ROUND)]
            async with asyncio.TaskGroup() as group:
                for _ in range(self._at_once):
                    group.create_task(self._one_after_the_other(left))
            moments.append(Moment(time.monotonic() - begun_s, done, await self._fits()))
            async with asyncio.TaskGroup() as group:
                for name in self._engines:
                    group.create_task(self._ask_directly(name, truths[name], moments[-1].fits[name]))
        return truths, moments

    async def _ask_directly(self, name: str, truth: Truth, fit: PerfModel) -> None:
        for length in LENGTHS:
            asked = await self._ask(self._engines[name], self._words(length))
            truth.asked.setdefault(length, []).append(asked)
            truth.foretold.append(fit.prefill_s(asked.tokens, asked.tokens) / asked.ttft_s)

    async def _one_after_the_other(self, prompts: list[str]) -> None:
        while prompts:
            await self._ask(self._gateway, prompts.pop())

    async def _ask(self, url: str, prompt: str) -> Asked:
        body = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": 6,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sent_s, seen_s, tokens, answer_tokens = time.monotonic(), [], 0, 0
        async with self._http.stream("POST", f"{url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: {") and '"choices":[]' not in line.replace(" ", ""):
                    seen_s.append(time.monotonic())
                elif line.startswith("data: {"):
                    usage = json.loads(line[6:])["usage"]
                    tokens, answer_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return Asked(tokens, seen_s[0] - sent_s, (seen_s[-1] - seen_s[0]) / max(answer_tokens - 1, 1))

    async def _fits(self) -> dict[str, PerfModel]:
        page = (await self._http.get(f"{self._gateway}/metrics")).text
        found = scan(page, tuple(_METRICS.values()))
        values: dict[str, dict[str, float]] = {name: {} for name in self._engines}
        for key, metric in _METRICS.items():
            for labels, value in found[metric]:
                values[labels["endpoint"]][key] = value
        return {name: PerfModel(**of) for name, of in values.items()}

    def _prompt(self) -> str:
        """Of mixed length; one in three begins as an earlier one did."""
        prompt = self._words(min(int(self._rng.lognormvariate(5.5, 0.9)) + 8, 1500))
        if self._earlier and self._rng.random() < 1 / 3:
            prompt = f"{self._rng.choice(self._earlier[-20:])} {self._words(self._rng.randint(4, 60))}"
        else:
            self._earlier.append(prompt)
        return prompt

    def _words(self, count: int) -> str:
        return f"{self._rng.getrandbits(60):x} " + " ".join(self._rng.choices(_WORDS, k=count))


@contextmanager
def throttled(pid: int) -> Iterator[None]:
    """A process of our own that only runs a third of the time."""
    ends = threading.Event()

    def stop_and_go() -> None:
        while not ends.wait(RUNS_S):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(RESTS_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _later_half(values: Sequence[T]) -> Sequence[T]:
    return values[len(values) // 2 :]


def predicted_wrong(fit: PerfModel, truth: Truth, length: int) -> float:
    """By how much of the truth the fit is off, for a prompt of that length of which nothing is cached."""
    tokens = truth.tokens(length)
    return fit.prefill_s(tokens, tokens) / truth.ttft_s(length) - 1


def fitted_tokens_per_s(fit: PerfModel, truth: Truth) -> float:
    """The fit's rate between the same lengths as the truth's."""
    short, long = truth.tokens(LENGTHS[0]), truth.tokens(LENGTHS[-1])
    return (long - short) / (fit.prefill_s(long, long) - fit.prefill_s(short, short))


def followed_after(name: str, truth: Truth, moments: Sequence[Moment]) -> Moment | None:
    """When the fit came near the truth of the longest prompts for the first time."""
    return next((m for m in moments if abs(predicted_wrong(m.fits[name], truth, LENGTHS[-1])) <= WITHIN), None)


def row_of(phase: str, name: str, truth: Truth, moments: Sequence[Moment]) -> dict[str, object]:
    """The figures of one engine in one phase."""
    fit, near = moments[-1].fits[name], followed_after(name, truth, moments)
    return {
        "phase": phase,
        "engine": name,
        "true_tokens_per_s": round(truth.tokens_per_s),
        "fitted_tokens_per_s": round(median(fitted_tokens_per_s(m.fits[name], truth) for m in _later_half(moments))),
        "foretold_quartiles": [round(share, 2) for share in quantiles(_later_half(truth.foretold), n=4)],
        **{f"true_ttft_s_{truth.tokens(n)}": round(truth.ttft_s(n), 4) for n in LENGTHS},
        **{f"fit_off_{truth.tokens(n)}": round(predicted_wrong(fit, truth, n), 3) for n in LENGTHS},
        "true_itl_s": round(truth.itl_s, 4),
        "fitted_itl_s": round(fit.itl_s, 4),
        "near_after_requests": near and near.requests,
        "near_after_s": near and round(near.at_s, 1),
        "phase_s": round(moments[-1].at_s, 1),
        "requests": moments[-1].requests,
    }


async def measured(home: Path, requests: int, at_once: int) -> list[dict[str, object]]:
    """Start engines and a gateway, run both phases. Raises `DemoFailed` where something does not start."""
    environment, directory = clean_environment(), ensure_model(MODEL)
    async with AsyncExitStack() as stack:
        pids, urls = {}, {}
        for number in range(2):
            name, core = f"engine-{number}", str(_CORES[-1 - number % len(_CORES)])
            command = [sys.executable, "-m", "backends.reference", "--model", MODEL, "--port", "0", "--threads", "1"]
            started = await stack.enter_async_context(
                started_process(
                    name,
                    [*command, "--cpu-affinity", core],
                    log=home / f"{name}.log",
                    environment=environment,
                    ready_within_s=120,
                )
            )
            pids[name], urls[name] = started.process.pid, await started.url()
        config = {
            "listen": {"port": 0},
            "backends": [{"id": name, "url": url} for name, url in urls.items()],
            "models": {MODEL: {"tokenizer": str(directory)}},
            "ledger": {"path": str(home / "ledger.db")},
            "scheduling": {"policy": "round_robin"},
            "log_level": "warning",
        }
        (home / "gateway.yaml").write_text(yaml.safe_dump(config))
        serve = [sys.executable, "-m", "gateway", "serve", "--config", str(home / "gateway.yaml")]
        gateway = await stack.enter_async_context(
            started_process("the gateway", serve, log=home / "gateway.log", environment=environment, ready_within_s=60)
        )
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=120))
        bench = Bench(http, await gateway.url(), urls, at_once)
        rows = [
            row_of("as it is", name, truth, moments)
            for truths, moments in [await bench.phase(requests)]
            for name, truth in truths.items()
        ]
        with throttled(pids["engine-0"]):
            truths, moments = await bench.phase(requests)
        return [*rows, *(row_of("engine-0 throttled", name, truth, moments) for name, truth in truths.items())]


def goals_of(rows: Sequence[Mapping[str, object]]) -> list[Goal]:
    """What the fit is to reach."""
    goals = []
    for row in rows:
        foretold = row["foretold_quartiles"]
        assert isinstance(foretold, list)
        name = f"{row['phase']}: {row['engine']}, share by which the fit is off in the later half, median"
        goals.append(Goal(name, round(abs(foretold[1] - 1), 3), WITHIN, "<="))
    near_s = next(row["near_after_s"] for row in rows if row["phase"] != "as it is" and row["engine"] == "engine-0")
    goals.append(Goal("seconds until the fit has followed", near_s if isinstance(near_s, float) else 1e9, 60, "<="))
    return goals


def main() -> None:
    """Measure, print, and write `bench/results/perf_fit.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument(
        "--at-once", type=int, default=1, help="more: as served beside others, which is slower than alone"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        rows = asyncio.run(measured(Path(home), options.requests, options.at_once))
    for row in rows:
        print("\n".join(f"{key:>22}  {value}" for key, value in row.items()), end="\n\n")
    goals = goals_of(rows)
    print("\n".join(goal.text() for goal in goals))
    print(write_result("perf_fit", rows, goals, ("torch", "httpx")))


if __name__ == "__main__":
    main()
