"""A run: faults one after the other, each with calm before it, until all is well again after it.

calm | fault ............ | undone, until all gateways say that nothing is degraded | calm | ...
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.faults.acting import Impossible, done
from bench.faults.fleet import Fleet
from bench.faults.types import Acted, Asked, Fault, Outcome, Step

WELL_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a fault lasts, and the calm before the next one."""

    fault_s: float
    calm_s: float


@dataclass(slots=True)
class Played:
    """What was done. `left_out`: faults that cannot be had here, and why; `said`: lines with their instants."""

    epoch_s: float
    steps: list[Step] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    said: list[tuple[float, str]] = field(default_factory=list)


async def play(
    fleet: Fleet, steps: Sequence[Sequence[Fault]], pace: Pace, asked: Sequence[Asked], say: Callable[[str], None]
) -> Played:
    """All steps, in order; `asked` grows meanwhile. Raises `DemoFailed` where what was killed does not start again."""
    played = Played(time.monotonic())

    def tell(what: str) -> None:
        at_s = time.monotonic() - played.epoch_s
        played.said.append((at_s, what))
        say(f"{at_s:7.1f} s  {what}")

    for faults in steps:
        before = len(asked)
        await _step(fleet, faults, pace, played, tell)
        lost = [str(one.outcome) for one in asked[before:] if one.ended_s and one.outcome is not Outcome.SERVED]
        if lost:
            tell(f"  of {len(asked) - before} requests: {dict(Counter(lost))}")
    await asyncio.sleep(pace.calm_s)
    return played


async def _step(fleet: Fleet, faults: Sequence[Fault], pace: Pace, played: Played, tell: Callable[[str], None]) -> None:
    calm_from_s = time.monotonic()
    await asyncio.sleep(pace.calm_s)
    acted: list[Acted] = []
    from_s = time.monotonic()
    name = " + ".join(fault.name for fault in faults)
    try:
        async with AsyncExitStack() as stack:
            for fault in faults:
                await stack.enter_async_context(done(fault, fleet, acted))
            tell(name)
            await asyncio.sleep(pace.fault_s)
    except Impossible as why:
        played.left_out[name] = str(why)
        tell(f"{name}: left out, {why}")
        return
    until_s = time.monotonic()
    is_well = await fleet.well(WELL_WITHIN_S)
    ended_s = time.monotonic()
    recovered_s = ended_s - until_s if is_well else None
    tell(
        f"  undone; all well after {recovered_s:.1f} s"
        if recovered_s is not None
        else f"  NOT well after {WELL_WITHIN_S:g} s: {json.dumps(await fleet.degraded())}"
    )
    played.steps.append(Step(tuple(acted), calm_from_s, from_s, until_s, ended_s, recovered_s))
