"""What the demo shows at its end: one table, one check, the bill; and the same as JSON."""

from dataclasses import asdict
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gateway.demo.types import BillLine, DemoOutcome, Policy, RunResult

_NAMES: Final = {Policy.ROUND_ROBIN: "round robin", Policy.PREFIX: "prefix-aware"}


def show_outcome(outcome: DemoOutcome, console: Console) -> None:
    """Print the comparison, whether the ledger agrees with the engines, and the bill of the prefix-aware run."""
    console.print()
    console.print(_comparison(outcome))
    in_turn, prefix = outcome.run(Policy.ROUND_ROBIN), outcome.run(Policy.PREFIX)
    console.print(
        f"prefix-aware computed [bold]{outcome.computed_ratio:.2f} ×[/] the tokens of round robin; "
        f"TTFT p50 [bold]{prefix.ttft_p50_s / in_turn.ttft_p50_s:.2f} ×[/]"
    )
    for run in outcome.runs:
        console.print(_check(run))
    console.print()
    console.print(_bill(outcome))


def outcome_json(outcome: DemoOutcome) -> dict[str, object]:
    """The figures of the tables under stable names: tokens, seconds, shares from 0 to 1, amounts as text."""
    return {
        "seed": outcome.seed,
        "model": outcome.model,
        "concurrency": outcome.concurrency,
        "working_set": asdict(outcome.working_set),
        "kv_blocks": outcome.kv_blocks,
        "runs": [_run_json(run) for run in outcome.runs],
        "computed_ratio": outcome.computed_ratio,
        "ledger_agrees": outcome.ledger_agrees,
        "bill": [asdict(line) for line in outcome.bill],
        "total": asdict(outcome.total),
    }


def _comparison(outcome: DemoOutcome) -> Table:
    table = _table(f"the same {outcome.runs[0].requests} requests, seed {outcome.seed}; tokens and seconds")
    table.add_column("policy")
    for head in ("prompt", "cached", "share", "computed", "TTFT p50", "p90", "prefill", "wall"):
        table.add_column(head, justify="right", no_wrap=True)
    for run in outcome.runs:
        counts = (run.engines.prompt_tokens, run.engines.cached_tokens)
        table.add_row(
            _NAMES[run.policy],
            *(f"{count:,}" for count in counts),
            f"{run.cached_share:.1%}",
            f"{run.engines.computed_tokens:,}",
            *(f"{seconds:.2f}" for seconds in (run.ttft_p50_s, run.ttft_p90_s)),
            *(f"{seconds:.1f}" for seconds in (run.engines.prefill_s, run.wall_s)),
        )
    return table


def _check(run: RunResult) -> str:
    sign, verdict = ("=", "[green]agrees[/]") if run.ledger_agrees else ("≠", "[bold red]DISAGREES[/]")
    return (
        f"{_NAMES[run.policy]:<12}  Σ ledger's cached tokens {run.ledger_cached_tokens:,} {sign} "
        f"{run.engines.cached_tokens:,} Σ engines' hits: {verdict}"
    )


def _bill(outcome: DemoOutcome) -> Table:
    table = _table(f"the bill of the prefix-aware run, {outcome.total.currency}")
    table.show_footer = True
    table.add_column("tenant", footer="total")
    heads = ("requests", "prompt", "cached", "output", "full price", "charged", "saved")
    for head, footer in zip(heads, _cells(outcome.total), strict=True):
        table.add_column(head, footer=footer, justify="right", no_wrap=True)
    for line in outcome.bill:
        table.add_row(line.tenant, *_cells(line))
    return table


def _table(title: str) -> Table:
    """Narrow enough for eighty columns."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def _cells(line: BillLine) -> tuple[str, ...]:
    counts = (line.requests, line.prompt_tokens, line.cached_tokens, line.output_tokens)
    amounts = (line.full_price, line.charged, line.saved)
    return (*(f"{count:,}" for count in counts), *(amount.rstrip("0").rstrip(".") for amount in amounts))


def _run_json(run: RunResult) -> dict[str, object]:
    return {
        "policy": run.policy.value,
        "requests": run.requests,
        "requests_by_engine": dict(run.requests_by_engine),
        "prompt_tokens": run.engines.prompt_tokens,
        "cached_tokens": run.engines.cached_tokens,
        "cached_share": run.cached_share,
        "computed_tokens": run.engines.computed_tokens,
        "prefill_s": run.engines.prefill_s,
        "ttft_p50_s": run.ttft_p50_s,
        "ttft_p90_s": run.ttft_p90_s,
        "wall_s": run.wall_s,
        "ledger_cached_tokens": run.ledger_cached_tokens,
        "ledger_agrees": run.ledger_agrees,
    }
