"""A period of the ledger as something to simulate: one model's load, and engines as fast as those that served it.

ledgers ──> ledger_loads ──> the model that is asked for ──> Past: workload, recorded, left out
    └─────> measured_work ──> PerfFit, on the preset ──────> how fast its endpoints were
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from backends import PerfModel
from backends.perf_fit import PerfFit, PrefillSample
from billing import LedgerPeriod, measured_work, parse_period
from gateway.sim.asked import AskedWrong
from gateway.sim.loads.ledger import LedgerLoad, ledger_loads

LEAST_SAMPLES = 20
"""With fewer requests of which seconds are known, a preset says more than they."""

_LATEST = 1000
_MOST_ROUNDS = 12
_STAYS = 1.03
"""The fit is taken when its rate moves by less than this, or after so many rounds over the latest prompts."""


class NothingToReplay(Exception):
    """The period has no request that can be replayed; the text says why."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the endpoints of a period were, fitted to that many prompts and answers; `model` is the prior's where
    there were too few of either."""

    model: PerfModel
    prompts: int
    answers: int

    @property
    def is_measured(self) -> bool:
        """Whether prompts are as fast as they were then."""
        return self.prompts >= LEAST_SAMPLES


def period_of(paths: Sequence[Path | str], text: str) -> LedgerPeriod:
    """The period as it is known now. Raises `PeriodInvalid`."""
    start, end = parse_period(text)
    return LedgerPeriod(tuple(paths), start, end, datetime.now(UTC))


def past_load(period: LedgerPeriod, model: str | None) -> LedgerLoad:
    """The load of a model, of the only one where none is named. Its workload and what was recorded are there.

    Raises `AskedWrong` where several could be meant, `NothingToReplay`, `LedgerUnavailable`.
    """
    loads = ledger_loads(period, model)
    if not loads:
        whose = "no request" if model is None else f"no request for {model!r}"
        raise NothingToReplay(
            f"the ledger has {whose} from {period.start:%Y-%m-%d %H:%M} to {period.end:%Y-%m-%d %H:%M}"
        )
    usable = [load for load in loads if load.workload is not None]
    if len(usable) > 1:
        raise AskedWrong(
            f"the period has several models, and a pool is of one: --model {' or '.join(m.model for m in usable)}"
        )
    if not usable:
        raise NothingToReplay(f"no request of the period can be replayed: {'; '.join(map(left_out_text, loads))}")
    return usable[0]


def _fitted(model: PerfModel, samples: Iterable[tuple[PrefillSample, float]]) -> PerfModel:
    """A fit that begins with the one before, until it stays: these seconds are what gateways had fitted, without noise,
    and a preset that is far from them must not have a say. O(samples).

    What the samples cannot tell apart stays as it is, since a model that explains them is not moved.
    """
    for _ in range(_MOST_ROUNDS):
        fit = PerfFit(model)
        for sample, at_s in samples:
            fit.prefill(sample, at_s)
        ratio = fit.model.prefill_tokens_per_s / model.prefill_tokens_per_s
        model = fit.model
        if 1 / _STAYS < ratio < _STAYS:
            break
    return model


def left_out_text(load: LedgerLoad) -> str:
    """What is not in the load, why, and how much of the work it was; "" where all of it is in."""
    left, share = load.left_out, load.left_out.token_share
    if not left.requests:
        return ""
    why = ", ".join(f"{count:,} {name}" for name, count in sorted(left.requests.items()))
    of = "" if share is None else f", {100 * share:.1f} % of the prompt tokens that were paid for"
    help_ = " (no_chain: ledger.chain_tokens was not set)" if "no_chain" in left.requests else ""
    return f"left out of {load.model}: {why}{of}{help_}"


def speed_of(period: LedgerPeriod, model: str, prior: PerfModel) -> Speed:
    """How fast the endpoints were. The time between tokens was measured with the crowd of then, so it is not made
    longer by a crowd once more. O(requests). Raises `LedgerUnavailable`.
    """
    fit, prompts, answers = PerfFit(prior), 0, 0
    latest: deque[tuple[PrefillSample, float]] = deque(maxlen=_LATEST)
    for one in measured_work(period, model):
        if one.prefill_s and one.uncached_tokens > 0:
            sample = PrefillSample(one.prefill_s, one.uncached_tokens, one.uncached_tokens * one.prompt_tokens)
            latest.append((sample, one.opened_at_us / 1e6))
            prompts += fit.prefill(*latest[-1])
        if one.decode_s and one.output_tokens > 1:
            answers += fit.decode(one.decode_s / (one.output_tokens - 1))
    fitted = _fitted(fit.model, latest) if prompts >= LEAST_SAMPLES else prior
    model_of = replace(fitted, itl_s=fit.model.itl_s)
    if answers < LEAST_SAMPLES:
        return Speed(replace(model_of, itl_s=prior.itl_s), prompts, answers)
    return Speed(replace(model_of, itl_s_per_request=0.0, itl_s_per_context_token=0.0), prompts, answers)
