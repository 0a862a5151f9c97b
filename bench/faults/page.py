"""The table of docs/reliability.md, from what a run has left in bench/results/chaos.json.

python -m bench.faults.page           prints it
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.result import RESULTS

HEAD = (
    "| fault | requests | failed | cut | p50 before | p50 during | slowest | p50 is back | no new work | work again |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def table_of(run: Mapping[str, Any], *, pairs: bool) -> Iterator[str]:
    """Lines of Markdown: single faults in the order of their names, or pairs."""
    yield from HEAD
    steps = [step for step in run["steps"] if (len(step["faults"]) > 1) == pairs]
    for step in sorted(steps, key=lambda step: [_by_part(name) for name in step["faults"]]):
        aims = step["endpoints"]
        cells = (
            ", ".join(step["faults"]),
            *(str(step[name]) for name in ("requests", "failed", "cut")),
            _s(step["ttft_p50_before_s"]),
            _s(step["ttft_p50_during_s"]),
            _s(step["ttft_slowest_s"]),
            _back(step["ttft_p50_back_after_s"]),
            "; ".join(_s(aim["no_new_work_after_s"], "at once") for aim in aims) or "-",
            "; ".join(_s(aim["work_again_after_s"]) for aim in aims) or "-",
        )
        yield f"| {' | '.join(cells)} |"


def _by_part(name: str) -> tuple[str, str]:
    kind, _, part = name.partition(" ")
    return part, kind


def _s(time_s: float | None, none: str = "-") -> str:
    return none if time_s is None else f"{time_s:.2f} s"


def _back(time_s: float | None) -> str:
    return "kept" if time_s == 0 else _s(time_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of all runs of the result."""
    result = json.loads((RESULTS / "chaos.json").read_text(encoding="utf-8"))
    for run in result["rows"]:
        for pairs in (False, True):
            if any((len(step["faults"]) > 1) == pairs for step in run["steps"]):
                sys.stdout.write(f"\n{run['ledger']}, {'two at a time' if pairs else 'one at a time'}\n\n")
                sys.stdout.write("\n".join(table_of(run, pairs=pairs)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
