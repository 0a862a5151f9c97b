"""Everything that `make bench-overhead` needs, running: engines, routers, and a Valkey for ours.

    core of the routers     one after the other is loaded, the others wait
    core of the rest        wrk ──> router ──> engines (nginx), Valkey beside them

A router with several workers gets further cores where the machine has more than two; where not, it shares the second
with the load, and only its CPU time means something.
"""

import asyncio
import json
import os
import secrets
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.reference.model_files import ensure_model
from bench.mortal_fleet.fleet import free_port
from bench.overhead_backend import backend, program
from bench.overhead_gateway import NAME, gateway, policy_of
from bench.overhead_load import Load
from bench.overhead_prompts import MODEL, Ask, asks
from bench.overhead_routers import HOST, Router, Site, peers
from gateway.demo.processes import clean_environment, started_process
from prefix_index import EmbeddedServer

ENGINES: Final = 2
WORKERS: Final = (1, 2)
"""How many workers ours is measured with, a row each."""
DIRECT: Final = "direct"
ROUTER, INDEX = "router", "index"
_READY_WITHIN_S: Final = 180.0
_ASK_AGAIN_S: Final = 0.2
_LAST_WORDS: Final = 1500
_TO_STDERR: Final = ("sh", "-c", 'exec "$@" >&2', "sh")
"""What a router prints goes to its log: nobody reads the pipe that started it."""


class StageFailed(Exception):
    """Something did not start, or answers what it should not; the text says what it said last."""


@dataclass(frozen=True, slots=True)
class Running:
    """A row of the table, ready. `watched`: processes by name; none where wrk asks an engine itself."""

    router: str
    policy: str
    url: str
    home: Path
    log: Path
    process: subprocess.Popen[bytes]
    watched: Mapping[str, int]

    @property
    def title(self) -> str:
        """Name and policy."""
        return f"{self.router} {self.policy}".strip()

    def last_words(self) -> str:
        """The end of its log, and how it ended where it did."""
        ended = "" if self.process.poll() is None else f"It ended with status {self.process.returncode}. "
        return f"{ended}Its log: {self.log.read_text(errors='replace')[-_LAST_WORDS:]}"

    @property
    def is_ours(self) -> bool:
        """Whether it can say how it is."""
        return self.router == NAME


@dataclass(frozen=True, slots=True)
class Stage:
    """All of it."""

    asks: Sequence[Ask]
    load: Load
    running: Sequence[Running]


@dataclass(frozen=True, slots=True)
class Cores:
    """Core numbers."""

    router: int
    load: int
    further: Sequence[int]

    def of(self, workers: int) -> str:
        """Those of a router with so many workers, as taskset reads them."""
        mine = [self.router, *self.further, self.load][:workers]
        return ",".join(map(str, mine))


def names(workers: Sequence[int] = WORKERS) -> list[str]:
    """The rows in their order."""
    return [DIRECT, *(router.title for router in _routers("", "", Path(), workers))]


def ours() -> str:
    """The row of ours with one worker."""
    return f"{NAME} {policy_of(1)}"


@asynccontextmanager
async def stage(home: Path, sizes: Mapping[str, int], wanted: Sequence[str]) -> AsyncIterator[Stage]:
    """Start what is wanted of `names()` in a folder, and wait until each answers; all ends with the block.

    Raises `StageFailed`, `ToolMissing`, `PromptsDiffer`, `PeerNotInstalled`.
    """
    cores = _cores()
    program("taskset", "util-linux")
    model, key = ensure_model(MODEL), f"sk-{secrets.token_urlsafe(32)}"
    found = asks(dict(sizes), model)
    engines = [free_port() for _ in range(ENGINES)]
    load = Load(home, found, key)
    async with AsyncExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores.load})  # what is started without a word about cores stays here
        index = await stack.enter_async_context(EmbeddedServer())
        command, log = backend(home / "engines", engines, found).command, home / "engines.log"
        process = await _started(stack, "engines", command, log, {})
        running = [Running(DIRECT, "", f"http://{HOST}:{engines[0]}", home, log, process, {})]
        for router in _routers(key, index.url, model, WORKERS):
            if router.title in wanted:
                running.append(await _running(stack, router, home, engines, cores, index.pid))
        for one in running:
            for ask in found:
                await _answers(one, ask, key)
        yield Stage(found, load, running)


def _routers(key: str, index_url: str, model: Path, workers: Sequence[int]) -> list[Router]:
    return [*peers(), *(gateway(key, index_url, model, count) for count in workers)]


def _cores() -> Cores:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        raise StageFailed("this takes Linux and two cores: one for the router, one for load and engines")
    return Cores(cores[0], cores[1], cores[2:])


async def _running(
    stack: AsyncExitStack, router: Router, home: Path, engines: Sequence[int], cores: Cores, index_pid: int | None
) -> Running:
    site = Site(home / router.title.replace(" ", "-"), free_port(), free_port(), engines)
    site.home.mkdir()
    workers = int(router.policy.split()[0]) if router.name == NAME else 1
    command = ("taskset", "-c", cores.of(workers), *_TO_STDERR, *router.command(site))
    log = home / f"{site.home.name}.log"
    process = await _started(stack, router.title, command, log, router.environment)
    watched = {ROUTER: process.pid}
    if router.name == NAME and index_pid is not None:
        watched[INDEX] = index_pid
    return Running(router.name, router.policy, f"http://{HOST}:{site.port}", site.home, log, process, watched)


async def _started(
    stack: AsyncExitStack, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Ends with the stack."""
    everything = {**clean_environment(), **environment}
    starting = started_process(name, command, log=log, environment=everything, ready_within_s=_READY_WITHIN_S)
    return (await stack.enter_async_context(starting)).process


async def _answers(one: Running, ask: Ask, key: str) -> None:
    """Wait until a row answers with what the engines say. Raises `StageFailed`."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{one.url}/v1/chat/completions", ask.body(0), headers)
    said: object = "nothing"
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            while one.process.poll() is None:
                if (said := await asyncio.to_thread(_usage, request)) == ask.answer()["usage"]:
                    return
                await asyncio.sleep(_ASK_AGAIN_S)
    except TimeoutError:
        pass
    raise StageFailed(f"{one.title}: {said} instead of what the engines answer. {one.last_words()}")


def _usage(request: urllib.request.Request) -> object:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["usage"]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()[:200]!r}"
    except (OSError, ValueError, KeyError) as error:
        return repr(error)
