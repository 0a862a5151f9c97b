"""The fleets and the loads of the routing tables: who computes, and what is asked of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

from backends import PerfModel
from backends.simulated import PRESETS, EngineSpec
from bench.result import ROOT
from gateway.sim.fleet import FleetPlan
from gateway.sim.loads import agents, arrivals, mooncake, sessions, shared_prefix
from gateway.sim.loads.generators.published import LLM_D_73_STAGES
from gateway.sim.play import OURS, Played
from gateway.sim.policies import by_name
from gateway.sim.records import Records, quantile
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

LADDER: Final = LLM_D_73_STAGES
WARM_UP_S: Final = LADDER[0][1]


def llm_d_ladder(output_tokens: int, seed: int) -> Workload:
    """llm-d's ladder of 150 groups of 5 prompts, with answers of so many tokens."""
    prompts = sum(rate * seconds for rate, seconds in LADDER)
    load = shared_prefix(150, 5, 6000, 1200, output_tokens, seed=seed, rounds=ceil(1.05 * prompts / 750) + 1)
    return arrivals.ladder(load, LADDER, seed)


def llm_d_stages(played: Played) -> dict[str, float]:
    """Figures of each stage after the warm-up: of the requests that came in it, output up to the last one's end."""
    figures: dict[str, float] = {}
    rows, begin_s = iter(range(len(played.records))), 0.0
    row = next(rows, None)
    for rate, seconds in LADDER:
        end_s, stage = begin_s + seconds, []
        while row is not None and played.records.at_s[row] < end_s:
            stage.append(row)
            row = next(rows, None)
        if begin_s >= WARM_UP_S and stage:
            figures |= {f"{name} @ {rate:g}/s": value for name, value in _stage(played.records, stage, begin_s).items()}
        begin_s = end_s
    return figures


def _stage(records: Records, rows: Sequence[int], begin_s: float) -> dict[str, float]:
    prompt, cached = sum(records.prompt_tokens[row] for row in rows), sum(records.cached_tokens[row] for row in rows)
    span_s = max(records.ended_s[row] for row in rows) - begin_s
    return {
        "ttft_p90_s": quantile(sorted(records.ttft_s[row] for row in rows), 0.9),
        "hit_share": cached / prompt,
        "output_tokens_per_s": sum(records.output_tokens[row] for row in rows) / span_s,
    }


def small_workers(count: int, tokens: float) -> FleetPlan:
    """Llama-3.1-8B on an H100 each, with a KV cache of so many tokens."""
    return FleetPlan.of(count, replace(PRESETS["llama_8b_h100"], capacity_blocks=int(tokens) // 16))


def coding_by_turn(seed: int) -> Workload:
    """Claude Code: sessions start by chance, one in 120 s; each request as long after the answer before it as recorded.
    The sessions, and the parts of them, that began in the first six hours."""
    return arrivals.turn_by_turn(sessions(CLAUDE_CODE, every_s=120, seed=seed, limit_s=SIX_HOURS_S))


def synthetic(_seed: int) -> Workload:
    """Mooncake's synthetic trace at its own times."""
    return mooncake(SYNTHETIC)
