"""Where the time of a gateway goes, by samples of its threads: py-spy beside one window of load.

    window ──> gateway <── py-spy, 200 times a second ──> stacks ──> own time by part, by function; time by step

Counted is the thread that holds the interpreter. What the event loop does in C without it (reading, writing, waiting),
SQLite, and what the kernel does for both, is in the first line alone, as the rest of the CPU time.
"""

import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.overhead_process import used
from bench.overhead_stage import ROUTER, Stage, StageFailed
from bench.peer import peer_python

CONNECTIONS: Final = 16
_PER_S: Final = 200
_SHOWN: Final = 40
_ROOMS: Final = ("gateway", "prefix_index", "backends", "billing")


@dataclass(slots=True)
class Profile:
    """Counts of samples: all of them, by function at the top of the stack, by part of that, by function anywhere."""

    samples: int = 0
    own: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)


def record(stage: Stage, size: str, seconds: int) -> str:
    """Profile the one gateway of a stage under load of a size; a text for people. Raises `StageFailed`, `NoResult`."""
    (one,) = (running for running in stage.running if running.is_ours)
    spy = peer_python("py-spy").with_name("py-spy")
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "stacks"
        command = (str(spy), "record", "--pid", str(one.watched[ROUTER]), "--gil", "--rate", str(_PER_S))
        lasts_s = max(1, seconds - 2)
        told = ("--duration", str(lasts_s), "--format", "raw", "--output", str(to))
        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(stage.load.window, one.url, size, CONNECTIONS, seconds)
            time.sleep(1)  # until all connections are open
            before = used(one.watched[ROUTER])
            done = subprocess.run((*command, *told), capture_output=True, text=True, check=False)
            after = used(one.watched[ROUTER])
        loading.result()
        if not to.exists():
            raise StageFailed(f"py-spy: {done.stderr.strip().splitlines()[0] if done.stderr else done.returncode}")
        profile = read_stacks(to.read_text(encoding="utf-8").splitlines())
    cpu_s, system_s = (after.cpu_us - before.cpu_us) / 1e6, (after.system_us - before.system_us) / 1e6
    shares = f"{cpu_s:.1f} s of CPU, {system_s:.1f} s of it the kernel's; the interpreter held for"
    what = f"{one.title}, {size}, c={CONNECTIONS}: in {lasts_s} s {shares} {profile.samples / _PER_S:.1f} s"
    return "\n".join(_text(profile, what)) + "\n"


def read_stacks(lines: Iterable[str]) -> Profile:
    """Of lines `outer (file:line);inner (file:line) count`."""
    profile = Profile()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        functions = [_function(frame) for frame in stack.split(";")]
        profile.samples += int(count)
        profile.own[functions[-1]] += int(count)
        profile.parts[part_of(functions[-1])] += int(count)
        for function in set(functions):
            profile.within[function] += int(count)
    return profile


def part_of(function: str) -> str:
    """What a function belongs to: a module of ours, a package of others."""
    path = Path(function.rpartition("(")[2].rstrip(")"))
    if path.parts and path.parts[0] in _ROOMS:
        return str(path.with_suffix(""))
    return path.parts[0].removesuffix(".py") if path.parts else function


def _function(frame: str) -> str:
    """Without the line."""
    name, _, place = frame.rpartition("(")
    return f"{name}({place.rpartition(':')[0] or place.rstrip(')')})"


def _text(profile: Profile, what: str) -> Iterator[str]:
    yield f"{what}; in % of the last"
    tables: Sequence[tuple[str, Counter[str]]] = (
        ("own time, by module of ours or package", profile.parts),
        ("own time, by function", profile.own),
        ("time, with all that it calls", Counter({k: n for k, n in profile.within.items() if _is_ours(k)})),
    )
    for title, counts in tables:
        yield from ("", title, "")
        for name, count in counts.most_common(_SHOWN):
            yield f"  {100 * count / max(1, profile.samples):5.1f}  {name}"


def _is_ours(function: str) -> bool:
    return part_of(function).partition("/")[0] in _ROOMS
