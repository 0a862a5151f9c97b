"""All metrics that there are, as the code declares them and as the documentation tells them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import Metric

from gateway.ledger_setup import measure
from gateway.team.messages import Crew
from gateway.telemetry import Telemetry
from gateway.workers.asking import SupervisorMetrics

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "prefixgate" / "files"
TARGET_LABELS = frozenset({"namespace", "pod", "instance", "job"})
"""What a scrape adds."""
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric. `labels` are its own, in the order in which the code has them."""

    name: str
    kind: str
    what: str
    labels: tuple[str, ...]


@cache
def declared() -> dict[str, Declared]:
    """By name, counters without `_total`."""
    telemetry, supervisor = Telemetry(), SupervisorMetrics(lambda: Crew(0, 0)).registry
    nothing: Any = SimpleNamespace(spool=None, settled_twice=0, interrupted=0)
    measure(nothing, telemetry.registry)
    labels = {**telemetry.registry.label_names(), "prefixgate_workers": ("state",), "prefixgate_worker_deaths": ()}
    families: list[Metric] = [*telemetry.registry.collect(), *supervisor.collect()]
    return {
        one.name: Declared(one.name, one.type, one.documentation, labels[one.name])
        for one in families
        if not one.name.endswith("_created")
    }


@cache
def series() -> dict[str, frozenset[str]]:
    """The labels of every series by its name as Prometheus has it, those of the target included."""
    return dict(_series())


def _series() -> Iterator[tuple[str, frozenset[str]]]:
    for one in declared().values():
        for suffix in _SUFFIXES[one.kind]:
            le = {"le"} if suffix == "_bucket" else set()
            yield one.name + suffix, frozenset({*one.labels, *TARGET_LABELS, *le})


@cache
def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and labels by name, as docs/metrics.md tells them."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(prefixgate_\w+)` \| (\w+) \| ([\w, ]*) ?\|", page, re.MULTILINE)
    return {name: (kind, tuple(labels.replace(",", " ").split())) for name, kind, labels in rows}
