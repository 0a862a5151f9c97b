"""Training on the bytes of a text: enough to see that nothing breaks, not to talk to."""

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from backends.reference.latent.model import LatentModel, scores

WARM_STEPS: Final = 20
RATE: Final = 3e-3
"""The highest. Ours, as are the numbers below."""
BETAS: Final = (0.9, 0.95)
DECAY: Final = 0.05
MOST_GRADIENT: Final = 1.0
"""Gradients whose norm is larger are made so large."""
_JUDGED_WINDOWS: Final = 16
"""At once."""


def trained(
    model: LatentModel, data: Tensor, *, steps: int, dice: Generator, batch: int = 8, length: int = 128
) -> list[float]:
    """Train in place on windows of `data`, token ids of one long text; returns the loss of each step, in nats a token.

    AdamW, the rate rising for `WARM_STEPS` and falling to nothing along a cosine. A step computes `batch` * `length`
    tokens; `data` must be longer than `length`.
    """
    weights = list(model.tensors())
    optimiser = torch.optim.AdamW(weights, lr=RATE, betas=BETAS, weight_decay=DECAY)
    losses: list[float] = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM_STEPS, (1 + math.cos(math.pi * step / steps)) / 2)
        starts = torch.randint(len(data) - length, (batch,), generator=dice)
        windows = torch.stack([data[start : start + length + 1] for start in starts.tolist()])
        loss = F.cross_entropy(scores(model, windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(weights, MOST_GRADIENT)
        optimiser.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def bits_per_byte(model: LatentModel, data: Tensor, *, length: int = 128) -> float:
    """How many bits a token of `data` takes, each window of `length` tokens from its start, the first one known."""
    windows = data[: (len(data) - 1) // length * length + 1]
    inputs, wanted = windows[:-1].view(-1, length), windows[1:].view(-1, length)
    nats = 0.0
    for some, then in zip(torch.split(inputs, _JUDGED_WINDOWS), torch.split(wanted, _JUDGED_WINDOWS), strict=True):
        nats += float(F.cross_entropy(scores(model, some).flatten(0, 1), then.flatten(), reduction="sum"))
    return nats / wanted.numel() / math.log(2)
