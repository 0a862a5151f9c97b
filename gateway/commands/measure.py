"""`prefixgate measure`: what is served, how fast under which load, and what holds it up.

    URL given      a load of your choice against an OpenAI-compatible address
    --live         what a running gateway serves from now on: its ledger, and what its engines say meanwhile
    else           the ledger of a gateway, the last hour by default

What it needs is imported when the command runs.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from backends.planning import Machine
from billing import BillingError
from billing.reports.reading import place_of
from billing.reports.timings import TimingsOf, timings_of
from billing.reports.zones import asked_period
from billing.when import to_us, zone_named
from gateway.admin_client import Asked, Gateway, TokenFile, as_gateways_say, asked, look, look_again
from gateway.command_line.answers import print_json
from gateway.command_line.progress import Said, progress
from gateway.command_line.refusals import NOT_DONE
from gateway.config import ledger_place
from gateway.measuring.charts import panels_of
from gateway.measuring.drawing import drawn
from gateway.measuring.engine_use import use_of, with_use
from gateway.measuring.errors import MeasuringError
from gateway.measuring.pictures import picture_of, write_picture
from gateway.measuring.roofline import held_against
from gateway.measuring.study import Frame
from gateway.measuring.terminal_plot import lines_of
from gateway.measuring.types import MOST_CV, MOST_TOKENS, Limits, Study
from gateway.published_models import asked_model, known_gpu
from gateway.terminal import (
    USUAL_KEY,
    AsJson,
    ConfigFile,
    From,
    LedgerPlace,
    Month,
    Quiet,
    TimeZone,
    To,
    key_in,
    read_config,
    refused,
)
from gateway.terminal_tables import show_tables

Number = TypeVar("Number", int, float)

_USUAL_PERIOD: Final = timedelta(hours=1)
_CHART_COLUMNS: Final = 80

_MOST_SECONDS: Final = 1e6
_ENDPOINTS: Final = "/admin/endpoints"
_LOOKS_EVERY_S: Final = 1.0


def measure(
    url: Annotated[str | None, typer.Argument(help="Address to put under load; default: measure the ledger.")] = None,
    model: Annotated[str | None, typer.Option(help="Model; default: the first that the address lists, or all.")] = None,
    clients: Annotated[
        str | None, typer.Option(help="Closed loop: so many at once, as 1,2,4; default: doubled until nothing is won.")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Open loop: requests a second, as 0.5,1,2.")] = None,
    cv: Annotated[
        float, typer.Option(min=0, max=MOST_CV, help="Variation of the gaps: 1 Poisson, 0 even, more is burstier.")
    ] = 1.0,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Arrivals of the trace; --rate is how many times as fast.")
    ] = False,
    prompt: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens of a prompt.")] = 512,
    output: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens of an answer.")] = 128,
    length_cv: Annotated[
        float, typer.Option(min=0, max=MOST_CV, help="Variation of both lengths; 0: all alike.")
    ] = 0.0,
    shared: Annotated[float, typer.Option(min=0, max=1, help="Share of a prompt that others have too.")] = 0.0,
    groups: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="So many different shared texts.")] = 8,
    load: Annotated[str | None, typer.Option(help="Instead: a built-in load; a wrong name lists them.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Instead: a file of requests, as docs/simulate.md has.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Instead: chats of your own, JSON Lines.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=_MOST_SECONDS, help="Of each level.")] = 10.0,
    warm: Annotated[float, typer.Option(min=0, max=_MOST_SECONDS, help="Seconds before, not told of.")] = 2.0,
    drain: Annotated[float, typer.Option(min=0, max=_MOST_SECONDS, help="Seconds after, for the last answers.")] = 30.0,
    requests: Annotated[int | None, typer.Option(min=1, help="At most so many of each level.")] = None,
    api_key_env: Annotated[str, typer.Option(help="Variable with the address's key.")] = USUAL_KEY,
    engines: Annotated[int, typer.Option(min=1, help="Equal engines behind an address that names none.")] = 1,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of all; default: the configuration's.")] = None,
    ttft: Annotated[
        float | None, typer.Option(min=0, max=_MOST_SECONDS, help="Seconds to the first token, for nine of ten.")
    ] = None,
    itl: Annotated[
        float | None, typer.Option(min=0, max=_MOST_SECONDS, help="Seconds between tokens, for nine of ten.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same texts and moments again; default: new ones.")] = None,
    plot: Annotated[
        list[Path] | None, typer.Option(help="Write the charts to a file, .svg or .png; repeat for both.")
    ] = None,
    chart: Annotated[
        bool | None, typer.Option("--chart/--no-chart", help="Charts in letters; default: on a terminal.")
    ] = None,
    plan_model: Annotated[
        str | None, typer.Option(help="Hold it against the arithmetic of prefixgate plan: this model of its catalogue.")
    ] = None,
    plan_config_json: Annotated[
        Path | None, typer.Option(help="... or of the model with this config.json, as plan --config-json takes it.")
    ] = None,
    plan_gpu: Annotated[str, typer.Option(help="... on --gpus of this kind, shared by all engines.")] = "h100",
    live: Annotated[
        bool, typer.Option("--live", help="Watch a running gateway for --seconds; with its ledger and admin token.")
    ] = False,
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    as_json: AsJson = False,
    quiet: Quiet = False,
    ledger: LedgerPlace = None,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """What is served, how fast under which load, where it bends, and what holds it up: prefill or decode, TTFT or ITL.

    With URL a load is put on it. Exit 1 where nothing was answered or recorded, 2 where it cannot be asked so.
    """
    frame = Frame(Limits(ttft, itl), gpus, engines)
    pictures = list(plot or ())
    try:
        for path in pictures:
            _can_be_drawn(path)
        of_load = {"clients": clients, "rate": rate, "load": load, "trace": trace, "corpus": corpus, "seed": seed}
        _must_be_of_one(url, of_load, {"from": from_, "to": to, "month": month, "ledger": ledger})
        machine = _machine(plan_model, plan_config_json, plan_gpu, gpus)
        if live:
            _must_be_alone(url)
            whom = asked(gateway, token_file, config)
            with progress("seconds", quiet=quiet or as_json) as told:
                study = _watched(whom, seconds, _Ledger(ledger, model, config, frame), told)
        elif url is None:
            period = _period(from_, to, month, time_zone)
            study = _of_ledger(_Ledger(ledger, model, config, frame), *period)
        else:
            from gateway.measuring.driving import Phase  # noqa: PLC0415 - only a load needs what makes one
            from gateway.measuring.offering import Offered, loaded  # noqa: PLC0415 - likewise
            from gateway.measuring.shapes import Shape  # noqa: PLC0415 - likewise
            from gateway.measuring.sweep import CONNECTIONS  # noqa: PLC0415 - likewise
            from gateway.serving.listening import room_for  # noqa: PLC0415 - likewise

            room_for(CONNECTIONS)
            offered = Offered(
                url=url,
                model=model,
                api_key=key_in(api_key_env),
                clients=_numbers(clients, int, "--clients"),
                rates=_numbers(rate, float, "--rate"),
                cv=None if recorded else cv,
                shape=Shape(prompt, output, length_cv, shared, groups),
                load=load,
                trace=trace,
                corpus=corpus,
                phase=Phase(warm, seconds, drain, requests),
                seed=secrets.randbelow(1 << 32) if seed is None else seed,
            )
            with progress("levels", quiet=quiet or as_json) as told:
                study = asyncio.run(loaded(offered, frame, told))
    except BillingError as error:
        raise refused(error) from None
    except MeasuringError as error:
        raise refused(error, 2 if isinstance(error, ValueError) else 1) from None
    if machine is not None:
        study = replace(study, held_against=held_against(study, machine))
    # The figures first: a disk that is full is not to cost them.
    _show(study, as_json=as_json, with_charts=sys.stdout.isatty() if chart is None else chart)
    _draw(study, pictures)


def _can_be_drawn(path: Path) -> None:
    """Before anything is measured."""
    picture_of(path)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise refused(f"{path}: its folder is not there, or nothing can be written to it", code="output_unwritable")


def _must_be_of_one(url: str | None, of_load: Mapping[str, object], of_ledger: Mapping[str, object]) -> None:
    """What is asked for is a load on an address or a look at a ledger. Raises what `refused` makes."""
    odd = [f"--{name}" for name, value in (of_load if url is None else of_ledger).items() if value is not None]
    if odd and url is None:
        raise refused(f"{', '.join(odd)}: a load needs the URL that it is put on")
    if odd:
        raise refused(f"{', '.join(odd)}: of a ledger, and {url} is put under load: give one of both")


def _must_be_alone(url: str | None) -> None:
    if url is not None:
        raise refused("--live watches what others ask; a URL is asked: give one of both")


def _machine(model: str | None, config_json: Path | None, gpu: str, gpus: int | None) -> Machine | None:
    """None where nothing is to be held against anything."""
    if model is None and config_json is None:
        return None
    return Machine(asked_model(model, config_json), known_gpu(gpu), gpus or 1)


@dataclass(frozen=True, slots=True)
class _Ledger:
    """Whose requests, of which model or all, are held against what."""

    place: str | None
    model: str | None
    config: Path | None
    frame: Frame


def _watched(whom: Asked, lasts_s: float, ledger: _Ledger, told: Said) -> Study:
    """What a gateway serves for so long, and what its engines say each second. That it is away for a while, since it
    is started anew, costs what they would have said meanwhile."""
    start, began_s = datetime.now(UTC), time.monotonic()
    pages: list[list[Any] | None] = [look(_ENDPOINTS, whom, list)]
    while (gone_s := time.monotonic() - began_s) < lasts_s:
        told(round(gone_s), round(lasts_s))
        time.sleep(min(_LOOKS_EVERY_S, lasts_s - gone_s))
        pages.append(look_again(_ENDPOINTS, whom, list))
    with as_gateways_say(whom):
        uses = use_of(page for page in pages if page is not None)
    study = with_use(_of_ledger(ledger, start, datetime.now(UTC)), uses)
    away = pages.count(None)
    if not away:
        return study
    return replace(study, notes=(*study.notes, f"the gateway did not answer {away} of {len(pages)} times when asked"))


def _of_ledger(ledger: _Ledger, start: datetime, end: datetime) -> Study:
    from gateway.measuring.past import record_of, study_past  # noqa: PLC0415 - not needed to put a load on an address

    settings = read_config(ledger.config, {})
    where = ledger.place or ledger_place(settings)
    start_us, end_us = to_us(start), to_us(end)
    timings = timings_of(where, TimingsOf(start_us, end_us, ledger.model))
    with closing(timings):
        record = record_of(timings, start_us, end_us)
    known_gpus = sum(one.gpus for one in settings.backends if one.gpu is not None) or None
    source = f"{place_of(where)}, {start.isoformat()} to {end.isoformat()}"
    return study_past(source, record, replace(ledger.frame, gpus=ledger.frame.gpus or known_gpus))


def _period(from_: str | None, to: str | None, month: str | None, time_zone: str) -> tuple[datetime, datetime]:
    """As it was typed; without any the last hour. Raises `BillingError`s."""
    zone = zone_named(time_zone)
    if (from_, to, month) == (None, None, None):
        now = datetime.now(UTC)
        return now - _USUAL_PERIOD, now
    return asked_period(from_, to, month, zone)


def _numbers(text: str | None, kind: type[Number], option: str) -> list[Number] | None:
    """Numbers with commas between them. Raises what `refused` makes."""
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise refused(f"{option} {text}: give numbers with commas between them") from None


def _draw(study: Study, pictures: Sequence[Path]) -> None:
    drawing = drawn(panels_of(study))
    for path in pictures:
        try:
            write_picture(drawing, study.source, path)
        except OSError as error:
            raise refused(f"{path}: {error.strerror}", NOT_DONE, code="output_unwritable") from None


def _show(study: Study, *, as_json: bool, with_charts: bool) -> None:
    from gateway.measuring import text  # noqa: PLC0415 - with what it needs

    if as_json:
        print_json(text.as_json(study))
        return
    for line in text.headline(study):
        typer.echo(line)
    console = show_tables(*text.tables_of(study), spare=text.SPARE, whole="--json")
    if with_charts:
        for panel in panels_of(study):
            for line in lines_of(panel, min(console.width, _CHART_COLUMNS)):
                typer.echo(line)
            typer.echo("")
    for line in text.verdict_lines(study):
        typer.echo(line)
