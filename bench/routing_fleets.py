"""The fleets and the loads of the routing tables: who computes, and what is asked of them."""

from functools import partial
from pathlib import Path
from typing import Final

from backends import PerfModel
from backends.simulated import PRESETS, EngineSpec
from bench.result import ROOT
from gateway.sim.fleet import FleetPlan
from gateway.sim.loads import agents, arrivals, mooncake, sessions
from gateway.sim.play import OURS
from gateway.sim.policies import by_name
from gateway.sim.types import Workload

TRACES: Final = ROOT / "bench" / "data" / "traces"
CONVERSATION: Final = TRACES / "mooncake_conversation.jsonl.gz"
SYNTHETIC: Final = TRACES / "mooncake_synthetic.jsonl.gz"
CLAUDE_CODE: Final = TRACES / "claude_code_sessions_weka.jsonl.gz"
TAU: Final = TRACES / "agent_tau_airline_cl100k_b16.jsonl.gz"

ALL: Final = (OURS, *by_name)
"""Every policy; ours first."""
BASELINES: Final = tuple(by_name)
SHORT: Final = (OURS, "random", "rr", "least-req", "sticky", "smg", "llmd-precise", "llmd-sticky-precise", "dynamo")
"""Those of the short run: one of each family."""

STEP_S: Final = 3.0
"""The conversation trace has its times in steps of so much."""
SIX_HOURS_S: Final = 6 * 3600.0
MILLION: Final = 1_000_000


def policies_for(full: bool) -> tuple[str, ...]:
    """All, or the short selection."""
    return ALL if full else SHORT


def caches(count: int, tokens: float, block_size: int) -> FleetPlan:
    """So many equal caches of so many tokens, for runs without time."""
    return FleetPlan.of(count, EngineSpec(block_size=block_size, capacity_blocks=int(tokens) // block_size))


def nodes(count: int, tokens: float, block_size: int, prefill_tokens_per_s: float = 40_960.0) -> FleetPlan:
    """So many nodes of 8 GPUs each with a KV cache of so many tokens: twice the speed of llm-d's pods of 2 H100 unless
    told otherwise, and a quadratic term that a model of that size has there."""
    perf = PerfModel(base_s=0.02, prefill_tokens_per_s=prefill_tokens_per_s, quad_s_per_token2=0.6e-9, itl_s=0.012)
    return FleetPlan.of(count, EngineSpec(block_size=block_size, capacity_blocks=int(tokens) // block_size, perf=perf))


def llm_d_pods(count: int = 8) -> FleetPlan:
    """The pods of llm-d's published benchmark: Qwen3-32B on two H100 each, 307,328 tokens of KV cache."""
    return FleetPlan.of(count, PRESETS["qwen3_32b_2xh100"])


def as_filed(path: Path, _seed: int) -> Workload:
    """A Mooncake trace in the order of its file, partial last blocks counted as the published hit ratios do."""
    return mooncake(path, partial_blocks=True)


def chat_at(speed: float, seed: int) -> Workload:
    """The conversation trace, so many times as fast as recorded; its steps are spread, the seed says how."""
    return arrivals.spread(arrivals.at_speed(mooncake(CONVERSATION), speed), STEP_S / speed, seed)


def coding(_seed: int) -> Workload:
    """Claude Code: a session starts each 120 s, in the order of the file; the first six hours."""
    return sessions(CLAUDE_CODE, every_s=120, limit_s=SIX_HOURS_S)


def tau_in_order(_seed: int) -> Workload:
    """The airline's agent, one conversation after the other, as the file has them."""
    return agents(TAU, partial_blocks=True, every_s=1e6)


def tau_side_by_side(_seed: int) -> Workload:
    """The same conversations, one beginning each 10 s; each turn 5 s after the answer before it."""
    return arrivals.turn_by_turn(agents(TAU))


chat_as_filed = partial(as_filed, CONVERSATION)
synthetic_as_filed = partial(as_filed, SYNTHETIC)
