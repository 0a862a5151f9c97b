"""What a command line asks of a run, read: which load, which engines, who restarts when.

--load, --trace                        ┐
--arrivals, --rate, --limit-requests   ├─> load_of(LoadAsked, seed) -> Workload
--fleet, --endpoints, --engine         ┤
--restart                              └─> plan_of(FleetAsked, block_size) -> FleetPlan
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backends.simulated import PRESETS, EngineSpec, Role
from gateway.sim.fleet import FleetPlan, Happening, What
from gateway.sim.loads import WorkloadError, arrivals, by_name, open_trace
from gateway.sim.loads.again import Again
from gateway.sim.loads.generators.plain import Plain, hot_prefix, no_sharing
from gateway.sim.types import SimRequest, Workload
from prefix_index import coarser

_ENGINES = re.compile(r"(?:(\d+)\s*x\s+)?(\w+)(?:\s*:\s*(both|prefill|decode))?")
_AS_LONG_AS_WANTED = {"no-sharing": no_sharing, "hot-prefix": hot_prefix}


class AskedWrong(Exception):
    """Something that was asked for cannot be; the text says what would do."""


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """A load and how its requests arrive; `load` is what a seed makes (`open_load` reads it)."""

    name: str | None = None
    trace: Path | None = None
    arrivals: str = "recorded"
    rate_per_s: float | None = None
    cv: float = 3.0
    speed: float = 1.0
    closed_loop: bool = False
    concurrency: int | None = None
    limit_requests: int | None = None
    limit_seconds: float | None = None
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class FleetAsked:
    """`fleet`: `4x NAME`, `2x NAME:prefill`, several with commas; else `endpoints` of `engine`. What is not None holds
    for every engine, whatever its preset says."""

    fleet: Sequence[str] = ()
    endpoints: int = 4
    engine: str = "qwen3_32b_2xh100"
    capacity_tokens: int | None = None
    prefill_tokens_per_s: float | None = None
    host_tokens: int | None = None
    restarts: Sequence[str] = ()


def load_of(asked: LoadAsked, seed: int) -> Workload:
    """The load that is asked for, with the seed's chance. Raises `AskedWrong`, `WorkloadError`, `OSError`."""
    if (asked.name is None) == (asked.trace is None):
        raise AskedWrong("one of --load NAME, --trace FILE and --from-ledger PERIOD says what is served")
    if asked.trace is not None:
        return arriving(asked, open_trace(asked.trace, seed), seed)
    assert asked.name is not None
    if asked.name not in by_name:
        raise AskedWrong(f"no load is called {asked.name!r}; there are {', '.join(sorted(by_name))}")
    make = _AS_LONG_AS_WANTED.get(asked.name)
    if make is None or asked.limit_requests is None:
        return arriving(asked, by_name[asked.name](seed), seed)
    return arriving(asked, make(seed, replace(_plain_of(asked.name), requests=asked.limit_requests)), seed)


def arriving(asked: LoadAsked, load: Workload, seed: int) -> Workload:
    """A load with the arrivals, the limits and the blocks that are asked for. Raises `AskedWrong`, `WorkloadError`."""
    if asked.limit_requests is not None:
        load = arrivals.take(load, asked.limit_requests)
    load = _timed(asked, load, seed)
    if asked.limit_seconds is not None:
        load = arrivals.until(load, asked.limit_seconds)
    if asked.concurrency is not None:
        load = arrivals.closed_loop(load, asked.concurrency)
    elif asked.closed_loop:
        load = arrivals.turn_by_turn(load)
    return load if asked.block_size in (None, load.block_size) else _in_blocks(load, asked.block_size or 0)


def plan_of(asked: FleetAsked, block_size: int) -> FleetPlan:
    """The engines, all with blocks of the load's size, and their restarts. Raises `AskedWrong`."""
    named = [spec for text in asked.fleet for spec in _engines(text)]
    if not asked.fleet:
        named = [_preset(asked.engine)] * asked.endpoints
    if not named:
        raise AskedWrong("a fleet has at least one engine")
    specs = [_changed(spec, asked, block_size) for spec in named]
    roles = {spec.role for spec in specs}
    if (Role.PREFILL in roles) != (Role.DECODE in roles):
        raise AskedWrong("prefill engines need decode engines to write the answers, and decode engines prefill engines")
    return FleetPlan(specs, [_restart(text, len(specs)) for text in asked.restarts])


def _plain_of(name: str) -> Plain:
    """The defaults of a load of which there can be any number of requests."""
    defaults = _AS_LONG_AS_WANTED[name].__defaults__
    assert defaults is not None
    plain = defaults[0]
    assert isinstance(plain, Plain)
    return plain


def _timed(asked: LoadAsked, load: Workload, seed: int) -> Workload:
    if asked.arrivals == "recorded":
        if asked.rate_per_s is not None:
            raise AskedWrong("--rate is for --arrivals poisson or bursty; recorded ones have --speed")
        return load if asked.speed == 1.0 else arrivals.at_speed(load, asked.speed)
    if asked.rate_per_s is None:
        raise AskedWrong(f"--arrivals {asked.arrivals} needs --rate, in requests per second")
    if asked.speed != 1.0:
        raise AskedWrong("--speed is for recorded arrivals; the others have --rate")
    if asked.arrivals == "poisson":
        return arrivals.poisson(load, asked.rate_per_s, seed)
    return arrivals.bursty(load, asked.rate_per_s, asked.cv, seed)


def _in_blocks(load: Workload, block_size: int) -> Workload:
    if block_size < 1 or block_size % load.block_size:
        raise AskedWrong(
            f"--block-size {block_size}: the load names its prompts in blocks of {load.block_size} tokens, "
            f"so blocks have that many tokens or a multiple of it"
        )

    def coarse() -> Iterator[SimRequest]:
        for r in load.requests:
            chain = coarser(r.chain, block_size)
            yield SimRequest(r.number, r.at_s, chain, r.output_tokens, r.session, r.tenant, r.after, r.think_s)

    return replace(load, block_size=block_size, requests=Again(coarse))


def _engines(text: str) -> Iterator[EngineSpec]:
    for part in text.split(","):
        found = _ENGINES.fullmatch(part.strip())
        if found is None:
            raise AskedWrong(f"--fleet {text!r}: engines are written as '4x {asked_engine()}', or '2x NAME:prefill'")
        count, name, role = found.groups()
        yield from [replace(_preset(name), role=Role(role or "both"))] * int(count or 1)


def asked_engine() -> str:
    """An engine that there is."""
    return next(iter(PRESETS))


def _preset(name: str) -> EngineSpec:
    if name not in PRESETS:
        raise AskedWrong(f"no engine is called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def _changed(spec: EngineSpec, asked: FleetAsked, block_size: int) -> EngineSpec:
    tokens = spec.capacity_blocks * spec.block_size if asked.capacity_tokens is None else asked.capacity_tokens
    host = spec.host_blocks * spec.block_size if asked.host_tokens is None else asked.host_tokens
    if tokens < block_size:
        raise AskedWrong(f"--capacity-tokens {tokens}: not even one block of {block_size} tokens")
    if host < 0:
        raise AskedWrong("--host-tokens are not negative")
    perf = spec.perf
    if asked.prefill_tokens_per_s is not None:
        if asked.prefill_tokens_per_s <= 0:
            raise AskedWrong("--prefill-tokens-per-s is more than 0")
        perf = replace(perf, prefill_tokens_per_s=asked.prefill_tokens_per_s)
    return replace(
        spec, block_size=block_size, capacity_blocks=tokens // block_size, host_blocks=host // block_size, perf=perf
    )


def _restart(text: str, endpoints: int) -> Happening:
    endpoint, at, seconds = text.partition("@")
    try:
        number, at_s = int(endpoint), float(seconds)
    except ValueError:
        raise AskedWrong(f"--restart {text!r}: it is written ENDPOINT@SECONDS, as 0@60") from None
    if not at or not 0 <= number < endpoints or not at_s >= 0:
        raise AskedWrong(f"--restart {text!r}: endpoints are 0 to {endpoints - 1}, seconds not negative")
    return Happening(at_s, number, What.RESTART)


__all__ = ["AskedWrong", "FleetAsked", "LoadAsked", "WorkloadError", "arriving", "load_of", "plan_of"]
