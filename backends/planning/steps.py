"""How long a prefill and a step of decoding take: a roofline, by what binds. Pure.

seconds
  │        bytes / bandwidth          arithmetic / rate
  │      ________________________---‾‾‾        a step takes the longer of the two,
  │     reading binds    │ arithmetic binds    and what the GPUs say to each other
  └──────────────────────┴───────────────── tokens in the step

prefill   2 FLOP · active parameters · u  +  FLOP of a pair · pairs            u uncached of n tokens
decoding  bytes: parameters touched + KV cache of all sequences
          FLOP:  B · (2 · active parameters + FLOP of a pair · context)
"""

from dataclasses import dataclass
from typing import Literal

from backends.planning.figures import Figure
from backends.planning.machine import Machine, bytes_of

__all__ = ["Step", "decode_step", "prefill"]

Bound = Literal["arithmetic", "memory bandwidth"]


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step, and its parts: `arithmetic_s` and `reading_s` go on at once, `adding_up_s` after them."""

    arithmetic_s: float
    reading_s: float
    adding_up_s: float
    kv_reading_s: float
    """Of reading, that of the KV cache."""
    how: str

    @property
    def seconds(self) -> float:
        """All of it."""
        return max(self.arithmetic_s, self.reading_s) + self.adding_up_s

    @property
    def bound(self) -> Bound:
        """What takes longer."""
        return "arithmetic" if self.arithmetic_s > self.reading_s else "memory bandwidth"

    def figure(self, name: str) -> Figure:
        """As a figure of a plan."""
        return Figure(name, self.seconds, "s", f"{self.how}; {self.bound} binds")


def prefill(machine: Machine, prompt_tokens: float, cached_tokens: float = 0.0) -> Step:
    """Computing what of a prompt is not cached; 0 seconds of arithmetic where all is. Raises `ValueError` where more is
    cached than there is."""
    if not 0 <= cached_tokens <= prompt_tokens:
        raise ValueError("cached tokens are part of the prompt")
    model, new = machine.model, prompt_tokens - cached_tokens
    linear = 2 * model.active_params * new
    attention = model.pair_flops * model.pairs_seen(new, prompt_tokens)
    read = model.params_read(new) * bytes_of(machine.weight_bits) + machine.kv_bytes(round(cached_tokens))
    how = (
        f"(2 × {model.active_params:.4g} × {new:,.0f} tokens + {attention:.3g} FLOP of attention)"
        f" / {machine.flops_per_s:.4g} FLOP/s, or {read / 1e9:.4g} GB / {machine.bytes_per_s / 1e12:.4g} TB/s"
    )
    return Step(
        arithmetic_s=(linear + attention) / machine.flops_per_s,
        reading_s=read / machine.bytes_per_s,
        adding_up_s=machine.all_reduce_s(new),
        kv_reading_s=machine.kv_bytes(round(cached_tokens)) / machine.bytes_per_s,
        how=how + _together(machine, new),
    )


def decode_step(machine: Machine, sequences: float, context_tokens: float, tokens_each: int = 1) -> Step:
    """One step of so many sequences of `context_tokens` each; `tokens_each` above 1: a speculation is verified."""
    model, tokens = machine.model, sequences * tokens_each
    context = round(context_tokens)
    kv = sequences * machine.kv_bytes(context)
    parameters = model.params_read(tokens) * bytes_of(machine.weight_bits)
    seen = sum(one.count * one.seen(context) for one in model.layers)
    flops = tokens * (2 * model.active_params + model.decode_pair_flops * seen)
    how = (
        f"({parameters / 1e9:.4g} GB of weights + {kv / 1e9:.4g} GB of KV) / {machine.bytes_per_s / 1e12:.4g} TB/s, "
        f"or {flops:.3g} FLOP / {machine.flops_per_s:.4g} FLOP/s"
    )
    return Step(
        arithmetic_s=flops / machine.flops_per_s,
        reading_s=(parameters + kv) / machine.bytes_per_s,
        adding_up_s=machine.all_reduce_s(tokens),
        kv_reading_s=kv / machine.bytes_per_s,
        how=how + _together(machine, tokens),
    )


def _together(machine: Machine, tokens: float) -> str:
    if machine.gpus == 1:
        return ""
    return f", + {machine.all_reduce_s(tokens) * 1e3:.3g} ms of {machine.all_reduces} all-reduces"
