"""Situations whose bottleneck is known, since they were made so, and what `prefixgate measure` calls them.

    long prompts, short answers    prefill takes the time, the limit of TTFT binds
    short prompts, long answers    decode takes it, no limit was given
    a tight limit of ITL           prompts hold up answers, so that prefill is what breaks it

On one simulated engine, and on the fleet of `make demo`: two real engines behind the gateway.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from backends.reference.model_files import ensure_model
from bench.result import Goal, write_result
from gateway.demo.engines import running_engines
from gateway.demo.gateway_process import running_gateway
from gateway.demo.processes import clean_environment
from gateway.demo.types import Policy

_ENGINE: Final = (sys.executable, "-m", "backends.simulated.serving", "--preset", "llama_8b_h100")
_ENDS_S: Final = 60.0
_MODEL: Final = "smollm2"
_KV_BLOCKS: Final = 1200
"""Of 16 tokens, of each engine: four prompts and their answers find room."""
_KEY: Final = "BENCH_KEY"
"""The variable that it is in."""
_SECONDS: Final = 6.0
_REAL_SECONDS: Final = 25.0
"""Of each level; an answer of the real engines takes seconds."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A load whose bottleneck is known, and the limit that it must break first."""

    name: str
    arguments: tuple[str, ...]
    bottleneck: str
    binds: str


Row = dict[str, object]

_LONG, _SHORT, _TIGHT = "long prompts, short answers", "short prompts, long answers", "a tight limit of ITL"

SIMULATED: Final = (
    Situation(_LONG, ("--prompt", "8000", "--output", "8", "--clients", "1,2,4", "--ttft", "0.6"), "prefill", "ttft"),
    Situation(_SHORT, ("--prompt", "64", "--output", "400", "--clients", "1,4,16"), "decode", "none_given"),
    Situation(
        _TIGHT,
        ("--prompt", "3000", "--output", "100", "--clients", "1,4,16", "--ttft", "10", "--itl", "0.012"),
        "prefill",
        "itl",
    ),
)
"""For an engine like one of 8 billion parameters on an H100."""

DEMO: Final = (
    Situation(_LONG, ("--prompt", "1000", "--output", "4", "--clients", "1,4", "--ttft", "1"), "prefill", "ttft"),
    Situation(_SHORT, ("--prompt", "32", "--output", "100", "--clients", "1,4"), "decode", "none_given"),
    Situation(
        _TIGHT,
        ("--prompt", "1400", "--output", "24", "--clients", "1,6", "--ttft", "60", "--itl", "0.08"),
        "prefill",
        "itl",
    ),
)
"""For two engines of 135 million parameters, each on one core of a processor."""


def measured(url: str, *arguments: str, key: str = "") -> dict[str, Any]:
    """A study as JSON."""
    with_key = ("--api-key-env", _KEY) if key else ()
    command = (sys.executable, "-m", "gateway", "measure", url, *arguments, *with_key, "--json")
    done = subprocess.run(command, env={**os.environ, _KEY: key}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"prefixgate measure: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def simulated_engine(speed: float = 1.0) -> Iterator[str]:
    """A simulated engine in a process of its own, with the tokens of a real model; its URL."""
    told = ("--speed", str(speed), "--max-model-len", "100000", "--tokenizer", str(ensure_model("smollm2")))
    with subprocess.Popen((*_ENGINE, *told), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "it was asked for"
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(_ENDS_S)


def named(fleet: str, url: str, situations: Sequence[Situation], seconds: float, key: str = "") -> list[Row]:
    """A row for each situation: what it is, and what it is called."""
    rows: list[Row] = []
    for one in situations:
        study = measured(url, *one.arguments, "--seconds", str(seconds), key=key)
        verdict = study["verdict"]
        found = {"named": verdict["bottleneck"], "named_limit": verdict["binds"], "reasons": verdict["reasons"]}
        rows.append({"fleet": fleet, **asdict(one), **found})
        print(rows[-1], flush=True)
    return rows


async def named_on_the_demo_fleet(seconds: float) -> list[Row]:
    """The same on what `make demo` runs: two engines of the reference, the gateway before them, a tenant's key."""
    environment = clean_environment()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with (
            running_engines(_MODEL, kv_blocks=_KV_BLOCKS, logs=home, environment=environment) as engines,
            running_gateway(
                Policy.PREFIX,
                engines,
                model=_MODEL,
                model_directory=ensure_model(_MODEL),
                home=home / "gateway",
                environment=environment,
            ) as gateway,
        ):
            key = next(iter(gateway.keys.values()))
            return await asyncio.to_thread(named, "the demo's fleet", gateway.url, DEMO, seconds, key)


def right(rows: Sequence[Row]) -> Goal:
    """Whether every situation is named as it is."""
    count = sum(row["named"] == row["bottleneck"] and row["named_limit"] == row["binds"] for row in rows)
    return Goal(f"situations named as they are, of {rows[0]['fleet']}", count, len(rows), ">=")


def main() -> int:
    """Run all of it, print and write it; 1 where one is called something else."""
    with simulated_engine() as url:
        simulated = named("one simulated engine", url, SIMULATED, _SECONDS)
    real = asyncio.run(named_on_the_demo_fleet(_REAL_SECONDS))
    goals = [right(simulated), right(real)]
    write_result("measure_situations", [*simulated, *real], goals, ("uvloop", "torch"))
    print(*(goal.text() for goal in goals), sep="\n")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
