"""`prefixgate plan`: what a model needs on GPUs, how fast it is there, what that costs. No gateway need run.

    one GPU named     every figure with its formula
    none named        a line for each kind of GPU, with the fewest of them that the model fits on

Exit code 1 where nothing that was asked for can serve the load within the limits.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from decimal import Decimal, InvalidOperation
from math import inf, isinf, nan
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from backends.hardware import GPUS
from backends.models import CATALOGUE, Model
from backends.planning import (
    ApiPrice,
    Asked,
    Bits,
    Limits,
    Machine,
    Plan,
    Request,
    Shares,
    corrected,
    fewest_gpus,
    plan,
    readable,
    speed_up,
)
from gateway.admin_client import Gateway, TokenFile, as_gateways_say, asked, look
from gateway.command_line.answers import print_json
from gateway.command_line.refusals import remark
from gateway.plan_fit import Measured, measured_shares
from gateway.published_models import ConfigJson, asked_model, known_gpu, known_model
from gateway.terminal import AsJson, ConfigFile, read_config, refused
from gateway.terminal_tables import show_tables

_SPARE: Final = ("KV B/token", "weights", "prefill share", "KV tokens", "TTFT p90", "binds")
_BITS: Final[dict[int, Bits]] = {16: 16, 8: 8, 4: 4}

# Beyond these nothing is planned, and numbers of a few digits stay so.
_MOST_TOKENS: Final = 10**9
_MOST_LOAD: Final = 1e9
_LEAST_PRICE, _MOST_PRICE = 1e-9, 1e6

Width = Annotated[int, typer.Option(help="16, 8 or 4.")]


def plan_command(
    model: Annotated[str | None, typer.Argument(help="Name in the catalogue; --list shows it.")] = None,
    config_json: ConfigJson = None,
    gpu: Annotated[str | None, typer.Option(help="Kind of GPU; default: a line for each.")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many work as one; default: the fewest that do.")
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Tokens of the usual prompt.")] = 2000,
    cached: Annotated[float, typer.Option(min=0, max=1, help="Share of it that is cached.")] = 0.0,
    output: Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Tokens of the usual answer.")] = 300,
    load: Annotated[float | None, typer.Option(min=0, max=_MOST_LOAD, help="Requests a second at the peak.")] = None,
    ttft: Annotated[float, typer.Option(min=0, help="Seconds to the first token, for nine of ten.")] = inf,
    itl: Annotated[float, typer.Option(min=0, help="Seconds between tokens.")] = inf,
    weight_bits: Width = 16,
    kv_bits: Width = 16,
    per_gpu_hour: Annotated[
        float | None, typer.Option(min=0, max=_MOST_PRICE, help="Price of an hour of a GPU.")
    ] = None,
    utilisation: Annotated[float, typer.Option(min=0.01, max=1, help="Mean load over the peak.")] = 1.0,
    api: Annotated[
        str | None, typer.Option(help="An API's prices per million tokens, INPUT:OUTPUT or INPUT:CACHED:OUTPUT.")
    ] = None,
    link: Annotated[
        float | None, typer.Option(min=0.001, help="GB/s between machines: plan prefill and decode apart too.")
    ] = None,
    draft: Annotated[str | None, typer.Option(help="A draft model: what speculation would bring.")] = None,
    acceptance: Annotated[float, typer.Option(min=0, max=1, help="How likely a proposed token is accepted.")] = 0.7,
    proposed: Annotated[int, typer.Option(min=1, max=1000, help="Tokens that a draft proposes at a time.")] = 4,
    fit: Annotated[
        bool, typer.Option("--fit", help="Take what a running gateway has measured in place of what is usual.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the models and GPUs that are known.")] = False,
    as_json: AsJson = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """What a model needs on GPUs, how fast it is there, and what that costs, by published sizes and rates.

    A roofline: right to within a quarter to a half; docs/planning.md has the formulas and what they leave out.
    """
    if listed:
        _show_known(as_json)
        return
    of = asked_model(model, config_json)
    drafted = None if draft is None else known_model(draft)
    if gpu is not None:
        known_gpu(gpu)
    if weight_bits not in _BITS or kv_bits not in _BITS:
        raise refused("weights and KV caches have 16, 8 or 4 bits")
    if link is not None and load is None:
        raise refused("--link: how many prefill and how many decode depends on the load: give --load too")
    cached_tokens = min(prompt - 1, round(prompt * cached))
    wanted = Asked(
        request=Request(prompt, output, cached_tokens),
        limits=Limits(ttft, itl),
        requests_per_s=load,
        per_gpu_hour=per_gpu_hour,
        utilisation=utilisation,
        api=None if api is None else _api(api, per_gpu_hour),
        link_bytes_per_s=None if link is None else link * 1e9,
    )
    bits = (_BITS[weight_bits], _BITS[kv_bits])
    measured = _measured(gateway, token_file, config, bits) if fit else []
    of_endpoints = [one.shares for one in measured if one.shares is not None]
    tried = (_plan(of, name, gpus, bits, wanted, of_endpoints) for name in ([gpu] if gpu else GPUS))
    plans = [one for one in tried if one is not None]
    served = [one for one in plans if one.served is not None]
    ups = [_speed_up(one, drafted, acceptance, proposed) for one in plans]
    if as_json:
        fits = [asdict(one) for one in measured]
        print_json([{**_as_json(one, up), "fitted_to": fits} for one, up in zip(plans, ups, strict=True)])
    else:
        _show(plans, ups, is_one_kind=gpu is not None)
        if gpu is None and any(one is not None for one in (api, link, draft)):
            remark("what --api, --link and --draft ask for is shown of one kind: name it with --gpu, or take --json")
        if measured:
            _show_measured(measured)
    if not served:
        why = plans[0].why_not if plans else "16 GPUs are too few"
        if all(one.apart is None for one in plans):
            raise refused(f"nothing serves it: {why}", 1)
        remark(f"only prefill and decode apart serve it; together: {why}")


def _show(plans: Sequence[Plan], ups: Sequence[float | None], *, is_one_kind: bool) -> None:
    if is_one_kind and plans:
        _show_figures(plans[0], ups[0])
    else:
        _show_lines(plans)


def _plan(
    model: Model, gpu: str, gpus: int | None, bits: tuple[Bits, Bits], wanted: Asked, measured: Sequence[Shares]
) -> Plan | None:
    machine = corrected(Machine(model, GPUS[gpu], gpus or 1, *bits), measured)
    return fewest_gpus(machine, wanted) if gpus is None else plan(machine, wanted)


def _measured(
    gateway: str | None, token_file: Path | None, config: Path | None, bits: tuple[Bits, Bits]
) -> list[Measured]:
    """What endpoints whose GPU the configuration names reach. Raises what `refused` makes where there is none."""
    of, backends = asked(gateway, token_file, config), read_config(config, {}).backends
    rows = look("/admin/endpoints", of, list)
    with as_gateways_say(of):
        found = measured_shares(backends, rows, bits)
    if not found:
        raise refused("no backend of the configuration names its gpu, so that nothing can be fitted", 1)
    return found


def _speed_up(one: Plan, draft: Model | None, acceptance: float, proposed: int) -> float | None:
    """With as many answers at once as the plan has."""
    if draft is None or one.served is None:
        return None
    drafting = replace(one.machine, model=draft)
    context = one.asked.request.context_tokens
    return speed_up(
        one.machine, acceptance, proposed, draft=drafting, sequences=one.served.sequences, context_tokens=context
    )


def _api(text: str, per_gpu_hour: float | None) -> ApiPrice:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise refused(f"--api {text}: give INPUT:OUTPUT or INPUT:CACHED:OUTPUT, per million tokens")
    try:
        rates = [float(Decimal(part)) for part in parts]
    except InvalidOperation:
        rates = [nan]
    if not all(rate == 0 or _LEAST_PRICE <= rate <= _MOST_PRICE for rate in rates):
        raise refused(f"--api {text}: prices are numbers, from 0 to {_MOST_PRICE:,.0f}")
    if not rates[0] and not rates[-1]:
        raise refused(f"--api {text}: nothing costs less than an API that is free")
    if per_gpu_hour is None:
        raise refused("--api is held against what GPUs cost: give --per-gpu-hour too")
    return ApiPrice(rates[0], rates[-1], rates[1] if len(rates) == 3 else None)


def _show_figures(one: Plan, up: float | None) -> None:
    machine = one.machine
    table = Table("figure", "value", "how", title=f"{machine.model.name} on {machine.gpus} × {_gpu_name(machine)}")
    for figure in one.figures:
        table.add_row(figure.name, readable(figure.value, figure.unit), figure.how)
    if one.apart is not None:
        two = one.apart
        table.add_row(
            "prefill and decode apart",
            f"{two.prefill_replicas} + {two.decode_replicas} replicas",
            f"TTFT p90 {readable(two.ttft_p90_s, 's')}, ITL {readable(two.itl_s, 's')}, "
            f"carrying a prompt's KV {readable(two.carrying_s, 's')}",
        )
    elif one.asked.link_bytes_per_s is not None:
        table.add_row("prefill and decode apart", "none", "no number of replicas keeps the limits")
    if up is not None and one.served is not None:
        how = f"tokens a step / (verifying + drafting), with {one.served.sequences:,} answers at once"
        table.add_row("speculation", f"{up:.2f} times as fast", how)
    show_tables(table, spare=("how",), whole="--json")


def _show_measured(measured: Sequence[Measured]) -> None:
    table = Table("endpoint", "GPUs", "model", "samples", "of peak", "of bandwidth", "over usual", "")
    for one in measured:
        shares = one.shares
        cells = (
            ("", "", "")
            if shares is None
            else (
                f"{shares.arithmetic:.0%}",
                f"{shares.bandwidth:.0%}",
                f"{shares.arithmetic_over_usual:.2f}, {shares.bandwidth_over_usual:.2f}",
            )
        )
        table.add_row(one.endpoint, f"{one.gpus} × {one.gpu}", one.model, str(one.samples), *cells, one.why_not or "")
    show_tables(table)


def _show_lines(plans: Sequence[Plan]) -> None:
    table = Table(
        *("GPUs", "weights", "KV B/token", "KV tokens", "at once", "TTFT p90", "ITL", "output tokens/s"),
        *("prefill share", "binds", "replicas", "fresh/M", "cached/M", "output/M"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for one in plans:
        table.add_row(f"{one.machine.gpus} × {_gpu_name(one.machine)}", *_cells(one))
    show_tables(table, spare=_SPARE, whole="--json")


def _cells(one: Plan) -> list[str]:
    values = {figure.name: figure for figure in one.figures}
    said = [
        readable(values["weights"].value, "B"),
        f"{values['KV cache of a token'].value:,.0f}",
        f"{values['tokens in the KV cache'].value:,.0f}",
    ]
    served = one.served
    if served is None:
        return [*said, one.why_not or "", *[""] * 9]
    costs = one.costs
    return [
        *said,
        f"{served.sequences:,}",
        readable(served.ttft_p90_s, "s"),
        readable(served.itl_s, "s"),
        f"{served.output_tokens_per_s:,.0f}",
        f"{served.prefill_share:.0%}",
        served.binds,
        "" if one.replicas is None else str(one.replicas),
        *(("", "", "") if costs is None else (f"{rate:.3f}" for rate in (costs.fresh, costs.cached, costs.output))),
    ]


def _as_json(one: Plan, up: float | None) -> dict[str, object]:
    machine, asked = one.machine, one.asked
    return {
        "model": machine.model.name,
        "gpu": _gpu_name(machine),
        "gpus": machine.gpus,
        "weight_bits": machine.weight_bits,
        "kv_bits": machine.kv_bits,
        "request": asdict(asked.request),
        "limits": {name: None if isinf(value) else value for name, value in asdict(asked.limits).items()},
        "requests_per_s": asked.requests_per_s,
        "served": one.served is not None,
        "why_not": one.why_not,
        "binds": None if one.served is None else one.served.binds,
        "figures": [asdict(figure) for figure in one.figures],
        "replicas": one.replicas,
        "apart": None if one.apart is None else asdict(one.apart),
        "speculation_speed_up": up,
    }


def _show_known(as_json: bool) -> None:
    if as_json:
        print_json({"models": list(CATALOGUE), "gpus": list(GPUS)})
        return
    models, gpus = Table("model", "parameters", "active", "layers", "context"), Table("GPU", "memory", "bandwidth")
    gpus.add_column("bf16, TFLOP/s")
    for one in CATALOGUE.values():
        row: list[Any] = [one.params / 1e9, one.active_params / 1e9]
        models.add_row(one.name, *(f"{value:.4g} B" for value in row), str(one.layer_count), f"{one.context_tokens:,}")
    for name, kind in GPUS.items():
        row = [kind.memory_bytes / 2**30, kind.bytes_per_s / 1e12, kind.flops / 1e12]
        gpus.add_row(name, f"{row[0]:.1f} GiB", f"{row[1]:.4g} TB/s", f"{row[2]:,.0f}")
    show_tables(models, gpus)


def _gpu_name(machine: Machine) -> str:
    return next(name for name, kind in GPUS.items() if kind is machine.gpu)
