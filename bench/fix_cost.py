"""What fixes cost a request: looking whether there is something to do; and where there is, changing the body.

    body --read--> request --worth--> nothing to do                            CPU time of each step, on one core
                               `----> fixed --> body --read--> request

No two bodies are alike: what changes in a prompt changes with each call, as it does in traffic.

make bench-fixes          half a minute: bench/results/fix_cost.json
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from statistics import median
from typing import Any, Final

from bench.result import Goal, write_result
from bench.template_corpus import load_templates, load_tools
from gateway.edge.reading import Arrival, read_request
from gateway.fixes import How, fixed
from gateway.fixes.rules import USUAL_FIXES, arm_of
from gateway.fixes.worth import worth
from gateway.types import InferenceRequest, KeyId, RequestId, Route, Tenant, TenantId

ROUNDS: Final = 9
_SAMPLE_S: Final = 0.05
HOW: Final = How(Route.CHAT, USUAL_FIXES)
MOST_LOOKING_US: Final = 400.0
MOST_CHANGING_US: Final = 2500.0
_CLOCK: Final = b"12:05:48"
"""Of the first call of a template, and only there."""
_US: Final = 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--no-result", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    rows = [_row(name, json.dumps(body).encode()) for name, body in _bodies()]
    for row in rows:
        print(" ".join(f"{name}={value}" for name, value in row.items()))
    looking = max(row["worth_us"] for row in rows)
    changing = max(row["worth_us"] + row["fixed_us"] + row["read_us"] for row in rows)
    goals = [
        Goal("looking whether there is something to fix, us", looking, MOST_LOOKING_US, "<="),
        Goal("looking, changing and reading again, us", changing, MOST_CHANGING_US, "<="),
    ]
    for goal in goals:
        print(goal.text())
    if not options.no_result:
        print(f"written to {write_result('fix_cost', rows, goals, ('prefixgate', 'msgspec'))}")
    return 0


def _row(name: str, body: bytes) -> dict[str, Any]:
    seconds = count()

    def another() -> bytes:
        return body.replace(_CLOCK, f"{datetime.fromtimestamp(next(seconds), UTC):%H:%M:%S}".encode(), 1)

    making_us = _cpu_us(another)
    changed = fixed(body, HOW)
    needed = worth(_read(body), HOW).fixes
    reading_us = _cpu_us(lambda: _read(another())) - making_us
    looking_us = _cpu_us(lambda: worth(_read(another()), HOW)) - making_us - reading_us
    fixing_us = _cpu_us(lambda: fixed(another(), How(Route.CHAT, needed))) - making_us if needed else 0.0
    return {
        "body": name,
        "bytes": len(body),
        "fixes": "+".join(changed.fixes),
        "read_us": round(reading_us, 1),
        "worth_us": round(looking_us, 1),
        "fixed_us": round(fixing_us, 1),
        "side_us": round(_cpu_us(lambda: arm_of(_read(body), 0.5)) - reading_us, 1),
    }


def _read(body: bytes) -> InferenceRequest:
    tenant = Tenant(TenantId("acme"), KeyId("key"), "acme", "")
    arrival = Arrival(RequestId("r"), tenant, Route.CHAT, Route.CHAT.value, (), 0.0, datetime(2026, 11, 30, tzinfo=UTC))
    return read_request(arrival, body)


def _bodies() -> list[tuple[str, dict[str, Any]]]:
    templates = {one.id: one.filled(1).text for one in load_templates()}
    planner, wiki = templates["deerflow1-planner"], templates["tau-airline-wiki"]
    tools = load_tools(65)
    turns = [{"role": role, "content": wiki[:800]} for _ in range(20) for role in ("user", "assistant")]
    return [
        ("short chat", _chat("You help.")),
        ("6 KB of system text", _chat(wiki)),
        ("15 KB that begin with a time", _chat(planner)),
        ("15 KB in order", _chat(planner.partition("---\n\n")[2])),
        ("65 tools in another order", {**_chat("You help."), "tools": tools[::-1]}),
        ("65 tools in order", {**_chat("You help."), "tools": tools}),
        ("40 turns behind a time", {**_chat(planner), "messages": [*_chat(planner)["messages"], *turns]}),
    ]


def _chat(system: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Go on."}]}


def _cpu_us(work: Callable[[], object]) -> float:
    """Median of some samples, each of many calls."""
    work()
    began = time.process_time()
    work()
    calls = max(1, int(_SAMPLE_S / max(time.process_time() - began, 1e-6)))
    samples = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            work()
        samples.append((time.process_time() - began) / calls)
    return median(samples) * _US


if __name__ == "__main__":
    sys.exit(main())
