"""What every benchmark leaves behind: `bench/results/NAME.json`, with machine, versions, rows and goals.

{"name", "commit", "machine", "versions", "rows": [...], "goals": [{"name", "value", "bound", "sense", "met"}]}

A goal that is not met is written like one that is.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"

Sense = Literal[">=", "<="]
GiB = 1024**3


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a figure is held against; `sense` says on which side of it the figure should be."""

    name: str
    value: float
    bound: float
    sense: Sense

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side, the bound included."""
        return self.value <= self.bound if self.sense == "<=" else self.value >= self.bound

    def text(self) -> str:
        """One line for people."""
        return f"{'met    ' if self.met else 'NOT MET'}  {self.name}: {self.value:g} {self.sense} {self.bound:g}"


def write_result(
    name: str,
    rows: Sequence[Mapping[str, object]],
    goals: Iterable[Goal],
    packages: Iterable[str],
    directory: Path = RESULTS,
) -> Path:
    """Write the result of the benchmark `name`; `packages` are the ones whose versions matter. Returns the file."""
    result = {
        "name": name,
        "commit": commit(),
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{one: _version(one) for one in packages}},
        "rows": list(rows),
        "goals": [{"name": g.name, "value": g.value, "bound": g.bound, "sense": g.sense, "met": g.met} for g in goals],
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def commit() -> str | None:
    """The commit that was measured, with `+changes` where tracked files differ from it; None outside a checkout."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return f"{head}+changes" if changed else head


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GiB, 1),
        "system": platform.platform(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
