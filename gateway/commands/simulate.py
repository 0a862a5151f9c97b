"""`prefixgate simulate`: what a fleet would do with a load, under this gateway's decisions and under those of others.

The simulator is imported when the command runs, so that `prefixgate serve` starts without it.
"""

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.command_line.answers import print_json
from gateway.command_line.progress import Said, progress
from gateway.config import ledger_place
from gateway.log_lines import LOGGER
from gateway.terminal import ConfigFile, Quiet, read_config, refused
from gateway.terminal_tables import wide_console

_WIDEST = 10_000

Load = Annotated[str | None, typer.Option("--load", help="A built-in load; a wrong name lists them.")]
Trace = Annotated[Path | None, typer.Option(help="A file of requests; docs/simulate.md lists the forms.")]
FromLedger = Annotated[
    str | None, typer.Option(help="Replay what was served: 2026-11, 2026-11-15 or FROM/TO; needs ledger.chain_tokens.")
]


class Arrivals(StrEnum):
    """When requests arrive."""

    RECORDED = "recorded"
    POISSON = "poisson"
    BURSTY = "bursty"


def simulate(
    load: Load = None,
    trace: Trace = None,
    from_ledger: FromLedger = None,
    ledger: Annotated[list[str] | None, typer.Option(help="Ledger to replay, file or URL; repeat for each.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to replay and to price.")] = None,
    endpoints: Annotated[int, typer.Option(min=1, help="So many equal engines.")] = 4,
    engine: Annotated[str, typer.Option(help="Their preset; a wrong name lists them.")] = "qwen3_32b_2xh100",
    fleet: Annotated[
        list[str] | None, typer.Option(help="Instead: '4x NAME, 2x NAME'; NAME:prefill and NAME:decode split the work.")
    ] = None,
    capacity_tokens: Annotated[int | None, typer.Option(min=1, help="KV cache of each engine.")] = None,
    prefill_tokens_per_s: Annotated[float | None, typer.Option(help="Prefill rate of each engine.")] = None,
    host_tokens: Annotated[int | None, typer.Option(min=0, help="KV cache in the host memory of each engine.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens of a block; default: the load's.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Repeat for each; default: prefixgate, rr, least-req.")
    ] = None,
    arrivals: Annotated[Arrivals, typer.Option(help="When requests arrive.")] = Arrivals.RECORDED,
    rate: Annotated[float | None, typer.Option(help="Requests per second, poisson or bursty.")] = None,
    cv: Annotated[float, typer.Option(help="Variation of the gaps of bursty arrivals; 1 is poisson.")] = 3.0,
    speed: Annotated[float, typer.Option(help="Recorded arrivals so many times as fast.")] = 1.0,
    closed_loop: Annotated[
        bool, typer.Option("--closed-loop", help="Send a turn when the answer before it has ended.")
    ] = False,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Instead of times: so many in flight, always.")] = None,
    limit_requests: Annotated[int | None, typer.Option(min=1, help="The first so many requests.")] = None,
    limit_seconds: Annotated[float | None, typer.Option(help="Requests of the first so many seconds.")] = None,
    skip_seconds: Annotated[float, typer.Option(help="Warm-up, left out of shares and times.")] = 0.0,
    replicas: Annotated[int, typer.Option(min=1, help="Gateway replicas.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each policy; the table has their means.")] = 1,
    restart: Annotated[list[str] | None, typer.Option(help="ENDPOINT@SECONDS: it loses all; repeat.")] = None,
    prices: Annotated[Path | None, typer.Option(help="The server's price book: a bill for each policy.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every seed.")] = False,
    quiet: Quiet = False,
    config: ConfigFile = None,
) -> None:
    """What a fleet would do with a load: hit share, time to first token, throughput and bill, policy by policy.

    Exit 1 where nothing can be simulated or no request is answered, 2 where the arguments or files cannot be used.
    """
    from gateway.sim import asked as ask  # noqa: PLC0415 - what it needs is not needed to serve
    from gateway.sim import command  # noqa: PLC0415 - likewise
    from gateway.sim.summary import as_json as json_of  # noqa: PLC0415 - likewise
    from gateway.sim.summary import table_of  # noqa: PLC0415 - likewise

    ledgers = list(ledger or []) if from_ledger is None or ledger else [str(ledger_place(read_config(config, {})))]
    asked = command.Asked(
        load=ask.LoadAsked(
            name=load,
            trace=trace,
            arrivals=arrivals.value,
            rate_per_s=rate,
            cv=cv,
            speed=speed,
            closed_loop=closed_loop,
            concurrency=concurrency,
            limit_requests=limit_requests,
            limit_seconds=limit_seconds,
            block_size=block_size,
        ),
        fleet=ask.FleetAsked(
            fleet=tuple(fleet or ()),
            endpoints=endpoints,
            engine=engine,
            capacity_tokens=capacity_tokens,
            prefill_tokens_per_s=prefill_tokens_per_s,
            host_tokens=host_tokens,
            restarts=tuple(restart or ()),
        ),
        policies=tuple(dict.fromkeys(policy or command.DEFAULT_POLICIES)),
        seeds=seeds,
        replicas=replicas,
        skip_s=skip_seconds,
        prices=prices,
        model=model,
        period=from_ledger,
        ledgers=ledgers,
    )
    LOGGER.addHandler(logging.NullHandler())  # of what happens to simulated engines nobody needs a warning
    try:
        with progress("requests", quiet=quiet or as_json) as told:
            summary = command.simulated(asked, Runs(told, len(asked.policies) * seeds))
    except command.CANNOT_BE_ASKED as error:
        raise refused(error) from None
    except command.CANNOT_BE_DONE as error:
        raise refused(error, 1) from None
    if as_json:
        print_json(json_of(summary))
    else:
        table = table_of(summary)
        console = wide_console(table)
        console.width = max(
            console.width, console.measure(table, options=console.options.update(width=_WIDEST)).maximum
        )
        for line in command.headline(summary):
            console.print(line, markup=False, highlight=False)
        console.print(table)
    if not any(line.figures.answered for lines in summary.runs.values() for line in lines):
        after = f" that arrived after the first {skip_seconds:g} s (--skip-seconds)" if skip_seconds else ""
        raise refused(f"no request was answered{after}", 1)


class Runs:
    """How far all runs of a study are. How many requests that will be is known when the first has ended."""

    def __init__(self, told: Said, runs: int) -> None:
        self._told = told
        self._runs = runs
        self._now: tuple[str, int] | None = None
        self._before = self._arrived = self._ended = 0

    def __call__(self, policy: str, seed: int, arrived: int) -> None:
        if self._now not in (None, (policy, seed)):
            self._before += self._arrived
            self._ended += 1
        self._now, self._arrived = (policy, seed), arrived
        self._told(self._before + arrived, self._before // self._ended * self._runs if self._ended else None)
