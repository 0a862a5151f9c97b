"""Loads: recorded traces, generators of published workloads, and the ways requests arrive.

    recorded    open_trace(path); or by its form: mooncake, azure, agents, sessions, servegen
    generated   by_name["llm-d-73"](seed); with other numbers: generators/, one file a published specification
    arrivals    arrivals.poisson(load, rate_per_s, seed), ladder, bursty, spread, closed_loop, take, until, ...

A load is lazy: it makes its requests while they are read, the same ones each time.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gateway.sim.loads import arrivals
from gateway.sim.loads.agents import agents
from gateway.sim.loads.azure import azure
from gateway.sim.loads.errors import LoadImpossible, WorkloadError, WorkloadInvalid
from gateway.sim.loads.generators.bailian import bailian_chat, bailian_programs
from gateway.sim.loads.generators.bursts import bursts
from gateway.sim.loads.generators.catalogue import CATALOGUE, Kind, from_catalogue
from gateway.sim.loads.generators.coding_study import coding_study
from gateway.sim.loads.generators.inference_day import inference_day
from gateway.sim.loads.generators.multi_round import multi_round
from gateway.sim.loads.generators.plain import hot_prefix, no_sharing
from gateway.sim.loads.generators.published import llm_d_37, llm_d_73, sglang, sglang_21199, sglang_31170
from gateway.sim.loads.generators.shared_prefix import shared_prefix
from gateway.sim.loads.generators.toolagent import toolagent
from gateway.sim.loads.mooncake import mooncake
from gateway.sim.loads.opening import open_trace
from gateway.sim.loads.servegen import servegen
from gateway.sim.loads.sessions import sessions
from gateway.sim.types import Workload


def _of_kind(kind: Kind) -> Callable[[int], Workload]:
    return lambda seed: from_catalogue(kind, seed)


_BUILT_IN: dict[str, Callable[[int], Workload]] = {
    "no-sharing": no_sharing,
    "hot-prefix": hot_prefix,
    "bursts": bursts,
    "llm-d-73": llm_d_73,
    "llm-d-37": llm_d_37,
    "sglang-shared-prefix": sglang,
    "sglang-21199": sglang_21199,
    "sglang-31170": sglang_31170,
    "multi-round": lambda seed: multi_round(),
    "mooncake-toolagent": toolagent,
    "bailian-chat": bailian_chat,
    "bailian-programs": bailian_programs,
    "inference-day": inference_day,
    "coding-study": coding_study,
}

by_name: Mapping[str, Callable[[int], Workload]] = MappingProxyType(
    _BUILT_IN | {kind.name: _of_kind(kind) for kind in CATALOGUE}
)
"""The generators by the names that a command line takes; each makes its load from a seed."""

__all__ = [
    "LoadImpossible",
    "WorkloadError",
    "WorkloadInvalid",
    "agents",
    "arrivals",
    "azure",
    "by_name",
    "mooncake",
    "open_trace",
    "servegen",
    "sessions",
    "shared_prefix",
]
