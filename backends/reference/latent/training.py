"""A few minutes of training on the bytes of a text: enough to tell shapes apart, not to talk to."""

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from backends.reference.latent.model import LatentModel, scores

WARM_STEPS: Final = 20
RATE: Final = 3e-3
MOST_GRADIENT: Final = 1.0


def trained(
    model: LatentModel, data: Tensor, *, steps: int, dice: Generator, batch: int = 8, length: int = 128
) -> list[float]:
    """Train in place on windows of `data`, token ids of one long text; returns the loss of each step, in nats a token.

    AdamW, the rate rising for `WARM_STEPS` and falling to nothing along a cosine.
    """
    weights = list(model.tensors())
    optimiser = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.95), weight_decay=0.05)
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
    for at in range(0, len(inputs), 16):
        some, then = inputs[at : at + 16], wanted[at : at + 16]
        nats += float(F.cross_entropy(scores(model, some).flatten(0, 1), then.flatten(), reduction="sum"))
    return nats / wanted.numel() / math.log(2)
