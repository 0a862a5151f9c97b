"""The load of a sweep, put on one address as `prefixgate measure` does; and the figures of a setting out of it."""

from gateway.command_line.progress import nobody
from gateway.measuring.driving import Phase
from gateway.measuring.errors import MeasuringError, NothingMeasured
from gateway.measuring.offering import Offered, loaded, need_load
from gateway.measuring.shapes import Shape
from gateway.measuring.study import Frame
from gateway.measuring.types import Spread as Measured
from gateway.tuning.asking import Asked
from gateway.tuning.errors import SettingFailed, SweepInvalid
from gateway.tuning.sweep_file import Load
from gateway.tuning.types import Speed, Spread


def need_usable(load: Load) -> None:
    """Before an engine is started. Raises `SweepInvalid` for a load that nobody can be sent."""
    try:
        need_load(_offered(Asked("http://engine", "model"), load))
    except MeasuringError as error:
        raise SweepInvalid(f"load: {error}") from None


def _offered(asked: Asked, load: Load) -> Offered:
    return Offered(
        url=asked.url,
        model=asked.model,
        api_key=asked.api_key,
        clients=[load.clients or 1] if load.rate is None else None,
        rates=None if load.rate is None else [load.rate],
        cv=load.cv,
        shape=Shape(load.prompt, load.output, load.length_cv, load.shared, load.groups),
        load=load.load,
        trace=load.trace,
        corpus=load.corpus,
        phase=Phase(load.warm, load.seconds, load.drain, load.requests),
        seed=load.seed,
    )


async def speed_of(asked: Asked, load: Load) -> tuple[Speed, list[str]]:
    """Figures of one level of load, and what to know of them. Raises `SettingFailed`."""
    try:
        study = await loaded(_offered(asked, load), Frame(), nobody)
    except NothingMeasured as error:
        lasts = f"of those asked in {load.seconds:g} s after {load.warm:g} s, waited for {load.drain:g} s"
        why = f"{error.what}, {lasts}: a slow engine needs longer ones, or fewer clients"
        raise SettingFailed("; ".join((why, *error.notes))) from None
    except MeasuringError as error:
        raise SettingFailed(str(error)) from None
    level = study.levels[0]
    speed = Speed(
        requests=level.requests,
        failed=level.failed + level.cut,
        requests_per_s=level.requests_per_s,
        output_tokens_per_s=level.output_tokens_per_s,
        ttft_s=_spread(level.ttft),
        itl_s=_spread(level.itl),
        hit_share=level.hit_share,
    )
    return speed, list(study.notes)


def _spread(measured: Measured | None) -> Spread | None:
    return None if measured is None else Spread(measured.p50, measured.p90, measured.p99)
