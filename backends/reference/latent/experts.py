"""A mixture of experts: of many feed-forward parts a token passes few, and one that all pass.

    x --router--> a share of each expert --the `active` largest, made to sum to 1-->  sum of share * expert(x)
      -------------------------------------------------------------------------->  + shared(x)

A batch is computed expert by expert, each with the tokens that chose it: as many products as experts were chosen by
anybody, and no token is left out where many choose one. So the answer to a token does not depend on its neighbours; how
long it takes does.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.layers import gated


@dataclass(frozen=True, slots=True)
class Experts:
    """`router` [experts, hidden], `gate_up` [experts, 2 * inner, hidden], `down` [experts, hidden, inner]; the shared
    one alike, without the first dimension. No experts at all leave a plain feed-forward part."""

    active: int
    router: Tensor = field(repr=False)
    gate_up: Tensor = field(repr=False)
    down: Tensor = field(repr=False)
    shared_gate_up: Tensor = field(repr=False)
    shared_down: Tensor = field(repr=False)


def routed(x: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """Shares and numbers of the experts that each row of x [n, hidden] passes, both [n, active]; shares sum to 1."""
    shares, chosen = F.linear(x, experts.router).softmax(dim=-1).topk(experts.active, dim=-1)
    return shares / shares.sum(dim=-1, keepdim=True), chosen


def mixture(x: Tensor, experts: Experts) -> Tensor:
    """The part of a layer, x [..., hidden]. O(active + 1) of an expert's products a token."""
    flat = x.reshape(-1, x.shape[-1])
    shares, chosen = routed(flat, experts)
    out = gated(flat, experts.shared_gate_up, experts.shared_down)
    for number, (gate_up, down) in enumerate(zip(experts.gate_up, experts.down, strict=True)):
        rows, place = (chosen == number).nonzero(as_tuple=True)
        if len(rows):
            out = out.index_add(0, rows, shares[rows, place].unsqueeze(-1) * gated(flat[rows], gate_up, down))
    return out.view(x.shape)


def busiest(x: Tensor, experts: Experts) -> float:
    """The share of all choices that fell on the expert which most rows of x [n, hidden] chose; 1 / experts where all
    are chosen alike."""
    counts = torch.bincount(routed(x, experts)[1].flatten(), minlength=len(experts.router))
    return float(counts.max() / counts.sum())
