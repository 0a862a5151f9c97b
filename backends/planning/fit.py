"""What of a datasheet is reached, out of the speed that was measured at an endpoint. Pure.

    share of arithmetic = measured tokens/s of prefill · 2 · active parameters / (peak · GPUs)
    share of bandwidth  = bytes that a step of one answer reads / (bandwidth · GPUs · measured ITL)

A share above 1 is no speed of that machine: the GPU, their number, the model or the bits are named wrongly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from backends.hardware import BANDWIDTH_SHARE
from backends.perf import PerfModel
from backends.planning.machine import Machine, bytes_of

__all__ = ["ImpossibleSpeed", "Shares", "corrected", "shares_of"]


class ImpossibleSpeed(ValueError):
    """Faster than the datasheet: `what` is reached by `share`, which is above 1."""

    def __init__(self, what: str, share: float) -> None:
        super().__init__(
            f"{share:.2f} of the {what} of the datasheet, which cannot be: are the GPU, their number, the model and "
            "the bits named rightly?"
        )
        self.what = what
        self.share = share


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the datasheet, 0 to 1, and over what is usual for the GPU."""

    arithmetic: float
    bandwidth: float
    arithmetic_over_usual: float
    bandwidth_over_usual: float


def shares_of(machine: Machine, measured: PerfModel) -> Shares:
    """What an endpoint reaches. Raises `ImpossibleSpeed`, and `ValueError` where its ITL is 0: it was never seen."""
    if measured.itl_s <= 0:
        raise ValueError("no time between tokens was measured")
    model = machine.model
    peak = (machine.gpu.eight_bit_flops if machine.weight_bits == 8 else machine.gpu.flops) * machine.gpus
    arithmetic = measured.prefill_tokens_per_s * 2 * model.active_params / peak
    read_bytes = model.params_read(1) * bytes_of(machine.weight_bits)
    bandwidth = read_bytes / (machine.gpu.bytes_per_s * machine.gpus * measured.itl_s)
    for what, share in (("arithmetic", arithmetic), ("bandwidth", bandwidth)):
        if share > 1:
            raise ImpossibleSpeed(what, share)
    return Shares(arithmetic, bandwidth, arithmetic / machine.gpu.share, bandwidth / BANDWIDTH_SHARE)


def corrected(machine: Machine, measured: Sequence[Shares]) -> Machine:
    """The machine with what was measured in place of what is usual: the median over the endpoints of how much more or
    less than usual each reaches, so that one kind of GPU teaches about another. As it was where nothing is measured."""
    if not measured:
        return machine
    return replace(
        machine,
        flops_share=min(1.0, machine.gpu.share * median(one.arithmetic_over_usual for one in measured)),
        bandwidth_share=min(1.0, BANDWIDTH_SHARE * median(one.bandwidth_over_usual for one in measured)),
    )
