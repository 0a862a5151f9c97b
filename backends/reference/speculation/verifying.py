"""Which tokens of a draft are kept, so that nobody can tell the answer from one without drafts. Pure, but for the dice.

    draft        d0   d1   d2
    logits       L0   L1   L2   L3        Li: what the model makes of all before di, and of d0 ... d(i-1)
    kept         t0 = d0, t1 = d1, t2 != d2, and nothing behind it

*The only draft that could be* (greedy, or looked up): each ti is drawn from Li as it would be without a draft, and
drafts are kept for as long as they are what was drawn. So each token takes one throw of the dice, and an answer with a
seed is the plain one, token for token.

*Drawn from shares q*: with p of Li, di is kept with probability min(1, p(di) / q(di)); else a token is drawn from what
q lacks, max(p - q, 0), and that is the last. Then each token has probability p, whatever q is, and a draft is kept more
often than by chance of meeting: with sum of min(p, q).
"""

from itertools import zip_longest

import torch
from torch import Generator, Tensor

from backends.reference.sampling import distribution, sample
from backends.reference.speculation.drafts import Draft
from backends.reference.types import SamplingParams


def verified(logits: Tensor, draft: Draft, params: SamplingParams, dice: Generator) -> list[int]:
    """The next tokens: a kept part of the draft, and one behind it. `logits` [tokens of the draft + 1, vocab].
    Raises `NoNumbers`."""
    if draft.shares is None:
        return _as_drawn(logits, draft, params, dice)
    kept: list[int] = []
    for row, token, shares in zip(logits, draft.tokens, draft.shares, strict=False):
        wanted = distribution(row, params)
        if torch.rand(1, generator=dice) * shares[token] < wanted[token]:
            kept.append(token)
            continue
        lacking = (wanted - shares).clamp(min=0)
        # Nothing is lacking where both are one and rounding alone was against the token.
        rest = lacking if lacking.sum() > 0 else wanted
        return [*kept, int(torch.multinomial(rest, 1, generator=dice))]
    return [*kept, sample(logits[-1], params, dice)]


def _as_drawn(logits: Tensor, draft: Draft, params: SamplingParams, dice: Generator) -> list[int]:
    kept: list[int] = []
    for row, drafted in zip_longest(logits, draft.tokens):
        kept.append(sample(row, params, dice))
        if kept[-1] != drafted:
            break
    return kept
