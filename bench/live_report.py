"""What runs on real engines come to: figures of each policy, and ratios of runs of the same round.

runs ──pooled──> TTFT p50, p90, p99, hit share       of all requests of a policy on a load
     ──by round──> requests/s, output tokens/s        median of the rounds, and their spread
     ──paired──> prefix / other, round by round       median, least, most
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.live_client import Driven, Served
from bench.result import Goal
from gateway.demo.run import percentile

POLICIES: Final = ("prefix", "round_robin", "least_requests")
OURS, *OTHERS = POLICIES
OPEN: Final = "shared, open"
CLOSED: Final = "shared, closed"
CONTROL: Final = "control, closed"
MOST_LOSS: Final = 0.05
PERCENTS: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One load under one policy in one round."""

    load: str
    policy: str
    round: int
    driven: Driven

    @property
    def ttft_p90_s(self) -> float:
        """What nine of ten clients waited at most for the first text."""
        return percentile([one.ttft_s for one in self.driven.served], 90)

    @property
    def requests_per_s(self) -> float:
        """From the first request to the last byte."""
        return len(self.driven.served) / self.driven.wall_s

    def text(self) -> str:
        """One line for people, while the others are still to come."""
        share = hit_share(self.driven.served)
        return (
            f"round {self.round}  {self.load:<16} {self.policy:<15} TTFT p90 {self.ttft_p90_s:6.3f} s  "
            f"{self.requests_per_s:6.2f} requests/s  hit {share:.0%}"
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """Prefix over another policy, the same load and round; `values` by round."""

    load: str
    figure: str
    other: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        """What is held against a goal."""
        return median(self.values)

    def row(self) -> dict[str, object]:
        """For the result file."""
        return {
            "load": self.load,
            "ratio": f"{self.figure}, prefix / {self.other}",
            "median": self.median,
            "least": min(self.values),
            "most": max(self.values),
            "rounds": list(self.values),
        }


def hit_share(served: Sequence[Served]) -> float:
    """Cached among all prompt tokens, as the engines report them."""
    return sum(one.cached_tokens for one in served) / max(sum(one.prompt_tokens for one in served), 1)


def rows_of(runs: Sequence[LiveRun]) -> list[dict[str, object]]:
    """A row for each load and policy, in the order in which they were first run."""
    return [_row(load, policy, chosen) for load, policy, chosen in _grouped(runs)]


def ratios_of(runs: Sequence[LiveRun]) -> list[dict[str, object]]:
    """A row for each load, figure and other policy."""
    return [ratio.row() for ratio in _ratios(runs)]


def goals_of(runs: Sequence[LiveRun]) -> list[Goal]:
    """Ours wins where prefixes are shared, and does not lose where they are not."""
    goals = []
    for ratio in _ratios(runs):
        name, slower = f"{ratio.load}: {ratio.figure}, prefix / {ratio.other}", ratio.figure == "TTFT p90"
        loss = MOST_LOSS if ratio.load == CONTROL else 0.0
        if ratio.load == OPEN and not slower:
            continue  # who can serve all that comes serves as much as comes
        goals.append(Goal(name, ratio.median, 1 + loss, "<=") if slower else Goal(name, ratio.median, 1 - loss, ">="))
    return goals


def table_of(runs: Sequence[LiveRun]) -> Table:
    """For people: seconds, and under ± half the spread of a policy's own rounds."""
    title = "bench-routing-live; TTFT in seconds, requests and output tokens a second"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in ("load", "policy"):
        table.add_column(head, no_wrap=True)
    for head in ("p50", "p90", "p99", "asked/s", "±", "tokens/s", "hit"):
        table.add_column(head, justify="right", no_wrap=True)
    for load, policy, chosen in _grouped(runs):
        ttft_s = [one.ttft_s for run in chosen for one in run.driven.served]
        per_s = [run.requests_per_s for run in chosen]
        table.add_row(
            load,
            policy,
            *(f"{percentile(ttft_s, percent):.2f}" for percent in PERCENTS),
            f"{median(per_s):.2f}",
            f"{_spread(per_s) / 2:.0%}",
            f"{median(_output_per_s(run) for run in chosen):.1f}",
            f"{hit_share([one for run in chosen for one in run.driven.served]):.0%}",
            end_section=policy == POLICIES[-1],
        )
    return table


def _row(load: str, policy: str, runs: Sequence[LiveRun]) -> dict[str, object]:
    served = [one for run in runs for one in run.driven.served]
    ttft_s, p90_s = [one.ttft_s for one in served], [run.ttft_p90_s for run in runs]
    per_s = [run.requests_per_s for run in runs]
    return {
        "load": load,
        "policy": policy,
        "requests": len(served),
        **{f"ttft_p{percent}_s": percentile(ttft_s, percent) for percent in PERCENTS},
        "requests_per_s": median(per_s),
        "output_tokens_per_s": median(_output_per_s(run) for run in runs),
        "hit_share": hit_share(served),
        "prompt_tokens": sum(one.prompt_tokens for one in served),
        "computed_tokens": sum(one.prompt_tokens - one.cached_tokens for one in served),
        "requests_by_endpoint": dict(sorted(Counter(one.endpoint for one in served).items())),
        "computed_tokens_by_endpoint": _computed_by_endpoint(served),
        "ttft_p90_s_by_round": p90_s,
        "requests_per_s_by_round": per_s,
        "noise_ttft_p90": _spread(p90_s),
        "noise_requests_per_s": _spread(per_s),
    }


def _computed_by_endpoint(served: Sequence[Served]) -> dict[str, int]:
    computed: Counter[str] = Counter()
    for one in served:
        computed[one.endpoint] += one.prompt_tokens - one.cached_tokens
    return dict(sorted(computed.items()))


def _output_per_s(run: LiveRun) -> float:
    return sum(one.output_tokens for one in run.driven.served) / run.driven.wall_s


def _spread(values: Sequence[float]) -> float:
    """Most less least, over the median."""
    return (max(values) - min(values)) / median(values)


def _grouped(runs: Sequence[LiveRun]) -> list[tuple[str, str, list[LiveRun]]]:
    loads = dict.fromkeys(run.load for run in runs)
    return [
        (load, policy, chosen)
        for load in loads
        for policy in POLICIES
        if (chosen := sorted((r for r in runs if (r.load, r.policy) == (load, policy)), key=lambda r: r.round))
    ]


def _ratios(runs: Sequence[LiveRun]) -> list[Ratio]:
    by_key = {(load, policy): chosen for load, policy, chosen in _grouped(runs)}
    ratios = []
    for load in dict.fromkeys(run.load for run in runs):
        for other in OTHERS:
            pairs = list(zip(by_key[load, OURS], by_key[load, other], strict=True))
            p90 = [ours.ttft_p90_s / theirs.ttft_p90_s for ours, theirs in pairs]
            per_s = [ours.requests_per_s / theirs.requests_per_s for ours, theirs in pairs]
            ratios += [Ratio(load, "TTFT p90", other, p90), Ratio(load, "requests/s", other, per_s)]
    return ratios
