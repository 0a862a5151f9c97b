"""Tables J to N: several gateways, nothing to share, unequal endpoints, what happens, and a thousand endpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from bench.decision_cost import decision_us
from bench.result import Goal
from bench.routing_fleets import MILLION, WARM_UP_S, chat_at, llm_d_ladder, llm_d_pods, nodes
from bench.routing_types import EVENNESS, HITS, TIMED, TTFT, Column, Outcomes, Scenario, Series, Table
from gateway.sim.fleet import FleetPlan, Happening, What
from gateway.sim.loads import arrivals, shared_prefix
from gateway.sim.loads.generators.plain import Plain, hot_prefix, no_sharing
from gateway.sim.play import OURS, Played, Replicas
from gateway.sim.records import Records, quantile
from gateway.sim.types import Workload

ONE, FOUR = "1 gateway", "4 gateways"
REPLICAS_TEXT: Final = """
llm-d's ladder with answers of 250 tokens, as in B, through one gateway and through four that a load balancer takes by
chance. What one writes to the index the others see 5 ms later; what it has outstanding they see every 50 ms.
"""


def several_gateways(full: bool) -> Table:
    """J."""
    load = partial(llm_d_ladder, 250)
    return Table(
        "J",
        "Several gateways",
        REPLICAS_TEXT,
        [
            Scenario(name, load, llm_d_pods(), (OURS,), replicas=Replicas(count), skip_s=WARM_UP_S, ceilings=False)
            for name, count in ((ONE, 1), (FOUR, 4))
        ],
        _gateway_goals,
    )


def _gateway_goals(outcomes: Outcomes) -> list[Goal]:
    one, four = (outcomes.sample(name, OURS, "hit_share").mean for name in (ONE, FOUR))
    return [
        Goal("J: hits lost by four gateways", one - four, 0.03, "<="),
        outcomes.at_most("J: max/mean of four gateways", FOUR, "imbalance", 1.3),
    ]


UNSHARED: Final = {rate: f"{rate} requests/s" for rate in (40, 80)}
UNSHARED_TEXT: Final = """
Prompts that share nothing, in the lengths of Azure's hour of chat, on eight nodes. There is nothing to win, and what a
policy of prefixes costs shows: it must be as good as the one that sends each prompt to where the least is waiting.
"""


def nothing_to_share(full: bool) -> Table:
    """K."""
    policies = (OURS, "least-work", "least-req", "rr") if full else (OURS, "least-work")
    return Table(
        "K",
        "Nothing to share",
        UNSHARED_TEXT,
        [Scenario(name, partial(_unshared, rate), _small_nodes(), policies) for rate, name in UNSHARED.items()],
        _unshared_goals,
    )


def _unshared(rate_per_s: float, seed: int) -> Workload:
    return no_sharing(seed, Plain(12_000, rate_per_s))


def _small_nodes() -> FleetPlan:
    return nodes(8, MILLION, 16, 20_480)


def _unshared_goals(outcomes: Outcomes) -> list[Goal]:
    goals = []
    for name in UNSHARED.values():
        for figure in ("ttft_mean_s", "ttft_p90_s"):
            goals.append(Goal(f"K, {name}: {figure} over least-work's", _ratio(outcomes, name, figure), 1.01, "<="))
        output = _ratio(outcomes, name, "output_tokens_per_s")
        goals.append(Goal(f"K, {name}: output over least-work's", output, 0.99, ">="))
    return goals


def _ratio(outcomes: Outcomes, scenario: str, figure: str) -> float:
    return outcomes.sample(scenario, OURS, figure).mean / outcomes.sample(scenario, "least-work", figure).mean


UNEQUAL: Final = "4 nodes, and 4 of twice the speed"
FAST_SHARE: Final = 2 / 3
UNEQUAL_TEXT: Final = """
Mixed hardware: four nodes of 20,480 tokens/s with caches of 0.5 M tokens, and four of twice the speed with three times
the cache. Nobody tells the gateway; it learns speeds from answers. The conversation trace at twice its speed. The fast
nodes should do two thirds of the work.
"""


def unequal(full: bool) -> Table:
    """L."""
    slow, fast = (nodes(4, tokens, 512, rate).specs for tokens, rate in ((MILLION // 2, 20_480), (1.5e6, 40_960)))
    policies = (OURS, "least-req", "least-work", "rr", "dynamo") if full else (OURS, "least-req")
    plan = FleetPlan([*slow, *fast])
    return Table(
        "L",
        "Unequal endpoints",
        UNEQUAL_TEXT,
        [Scenario(UNEQUAL, partial(chat_at, 2), plan, policies, extra=_fast_share)],
        _unequal_goals,
        columns=(*TIMED, Column("fast half's work %", "fast_share", 1, 100)),
    )


def _fast_share(played: Played) -> Mapping[str, float]:
    work = played.records.uncached_of
    return {"fast_share": sum(work[len(work) // 2 :]) / sum(work)}


def _unequal_goals(outcomes: Outcomes) -> list[Goal]:
    return [
        outcomes.at_least("L: work of the fast half", UNEQUAL, "fast_share", 0.9 * FAST_SHARE),
        outcomes.at_most("L: work of the fast half, at most", UNEQUAL, "fast_share", 1.1 * FAST_SHARE),
    ]


EVENT_S: Final = 1_800.0
POINTS: Final = (("5 min before", -300.0, 0.0), ("1 min after", 0.0, 60.0), ("1 to 5 min", 60.0, 300.0),
                 ("5 to 10 min", 300.0, 600.0))  # fmt: skip
RESTART, JOIN, HOT = "one of eight restarts", "an eighth joins", "60 % have one prefix"
HAPPENINGS_TEXT: Final = """
The conversation trace on nodes of 40,960 tokens/s and 1 M tokens. After half an hour one of them restarts, away for
20 s and empty then; or an eighth joins seven, empty. And a load of which 60 % begin with the same 8,000 tokens, the
others with nothing known: no endpoint may be buried under what all want.
"""


def happenings(full: bool) -> Table:
    """M."""
    policies = (OURS, "least-req", "sticky", "llmd-precise", "dynamo") if full else (OURS, "llmd-precise")
    plan = nodes(8, MILLION, 512)
    specs = [replace(spec, start_s=20.0) for spec in plan.specs]
    chat, about = partial(chat_at, 1), partial(_around, len(specs), EVENT_S)
    return Table(
        "M",
        "What happens to a fleet",
        HAPPENINGS_TEXT,
        [
            Scenario(RESTART, chat, FleetPlan(specs, [Happening(EVENT_S, 3, What.RESTART)]), policies, extra=about),
            Scenario(JOIN, chat, FleetPlan(plan.specs, [Happening(EVENT_S, 7, What.JOIN)]), policies, extra=about),
            Scenario(HOT, _hot, _small_nodes(), policies),
        ],
        _happening_goals,
        series=(
            Series("mean TTFT in seconds around the event", "ttft_mean_s", 3),
            Series("hits in % around the event", "hit_share", 1, 100),
            Series("max/mean work around the event", "imbalance"),
        ),
    )


def _hot(seed: int) -> Workload:
    return hot_prefix(seed, Plain(12_000, 40.0))


def _around(endpoints: int, event_s: float, played: Played) -> Mapping[str, float]:
    """Figures of the requests that came in each window around an event."""
    records = played.records
    figures: dict[str, float] = {}
    for name, from_s, to_s in POINTS:
        rows = [row for row, at_s in enumerate(records.at_s) if from_s <= at_s - event_s < to_s]
        rows = [row for row in rows if records.cached_tokens[row] >= 0]
        if rows:
            figures |= {f"{figure} @ {name}": value for figure, value in _window(records, rows, endpoints).items()}
    return figures


def _window(records: Records, rows: Sequence[int], endpoints: int) -> dict[str, float]:
    work = [0] * endpoints
    for row in rows:
        work[records.endpoint[row]] += records.prompt_tokens[row] - records.cached_tokens[row]
    return {
        "ttft_mean_s": sum(records.ttft_s[row] for row in rows) / len(rows),
        "ttft_p90_s": quantile(sorted(records.ttft_s[row] for row in rows), 0.9),
        "hit_share": sum(records.cached_tokens[row] for row in rows) / sum(records.prompt_tokens[row] for row in rows),
        "imbalance": max(work) * endpoints / sum(work),
    }


def _happening_goals(outcomes: Outcomes) -> list[Goal]:
    before, after, later = (f"ttft_mean_s @ {POINTS[at][0]}" for at in (0, 1, 3))
    goals = [outcomes.at_most("M: max/mean with a hot prefix", HOT, "imbalance", 1.3)]
    for name in (RESTART, JOIN):
        was, then, at_last = (outcomes.sample(name, OURS, figure).mean for figure in (before, after, later))
        goals.append(Goal(f"M, {name}: TTFT in the minute after over that before", then / was, 2.0, "<="))
        goals.append(Goal(f"M, {name}: TTFT five minutes later over that before", at_last / was, 1.3, "<="))
    return goals


LARGE_ENDPOINTS: Final = 1_000
DECIDED: Final = (16, 100, 500, 1_000)
LARGE_TEXT: Final = """
1,000 pods, 10 gateways, 5,000 requests a second: groups of 500 prompts with 2,000 common tokens and 500 of their own,
answers of 100. The full run plays a million requests of 2,000 groups, the short one 20,000 of 40, which is four seconds
of a cold fleet: its hits say little. One seed. The second table is what a decision takes, in microseconds of one core.
"""


def a_thousand(full: bool) -> Table:
    """N."""
    name = _large_name(full)
    return Table(
        "N",
        "A thousand endpoints",
        LARGE_TEXT,
        [
            Scenario(
                name,
                partial(_large_load, 2_000 if full else 40),
                llm_d_pods(LARGE_ENDPOINTS),
                (OURS, "least-req"),
                replicas=Replicas(10),
                extra=_decision_costs,
                ceilings=False,
                most_seeds=1,
            )
        ],
        partial(_large_goals, name),
        columns=(HITS, *TTFT, EVENNESS),
        series=(Series("a decision in µs, by endpoints", "decision_us", 0),),
    )


def _large_name(full: bool) -> str:
    return "1,000,000 requests" if full else "20,000 requests"


def _large_load(groups: int, seed: int) -> Workload:
    return arrivals.poisson(shared_prefix(groups, 500, 2_000, 500, 100, seed=seed), 5.0 * LARGE_ENDPOINTS, seed)


def _decision_costs(played: Played) -> Mapping[str, float]:
    if played.policies[0].name != OURS:
        return {}
    return {f"decision_us @ {endpoints}": decision_us(endpoints) for endpoints in DECIDED}


def _large_goals(name: str, outcomes: Outcomes) -> list[Goal]:
    return [
        outcomes.at_most("N: a decision among 16 endpoints, in µs", name, "decision_us @ 16", 100),
        outcomes.at_most("N: a decision among 500 endpoints, in µs", name, "decision_us @ 500", 1_000),
    ]


SCALE: Final[Mapping[str, Callable[[bool], Table]]] = {
    "J": several_gateways,
    "K": nothing_to_share,
    "L": unequal,
    "M": happenings,
    "N": a_thousand,
}
"""Each by its letter."""
