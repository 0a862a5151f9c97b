"""Speculative decoding: a draft proposes k tokens, the model verifies them in one step. Pure.

    tokens a step   = (1 − a^(k+1)) / (1 − a)          a: how likely a proposed token is accepted
    speed-up        = tokens a step · step / (step that verifies k + 1 + k · step of the draft)

The first factor counts the token that the model itself adds at the end, so that a step never makes less than one. As in
Leviathan, Kalman, Matias, *Fast Inference from Transformers via Speculative Decoding*, arXiv 2211.17192, but with a
step that grows with what it verifies: with a large batch arithmetic binds, and it slows down.
"""

from backends.planning.machine import Machine
from backends.planning.steps import decode_step

__all__ = ["speed_up", "tokens_a_step"]


def tokens_a_step(acceptance: float, proposed: int) -> float:
    """Expected tokens of a step, 1 to k + 1. Raises `ValueError` for what is no share, or no number of tokens."""
    if not 0 <= acceptance <= 1 or proposed < 0:
        raise ValueError("acceptance is a share from 0 to 1, and proposed tokens are 0 or more")
    return float(proposed + 1) if acceptance == 1 else (1 - acceptance ** (proposed + 1)) / (1 - acceptance)


def speed_up(
    machine: Machine,
    acceptance: float,
    proposed: int,
    *,
    draft: Machine | None = None,
    sequences: float = 1,
    context_tokens: float = 1024,
) -> float:
    """How many times as fast answers are written; below 1 slower. Without a `draft` model proposals cost nothing, as
    where they are looked up in the prompt."""
    plain = decode_step(machine, sequences, context_tokens).seconds
    verifying = decode_step(machine, sequences, context_tokens, proposed + 1).seconds
    drafting = 0.0 if draft is None else proposed * decode_step(draft, sequences, context_tokens).seconds
    return tokens_a_step(acceptance, proposed) * plain / (verifying + drafting)
