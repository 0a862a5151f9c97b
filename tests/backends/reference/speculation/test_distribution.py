"""Sampled tokens have the distribution that they have without drafts: chi-squared, and proof that it would notice.

Tokens of a small chain: what comes next depends on the last token alone, so that the probability of three in a row is
known. The draft is drawn from another chain.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import Generator, Tensor

from backends.reference.sampling import distribution, sample
from backends.reference.speculation import Draft, verified
from backends.reference.types import DraftMethod, EngineConfig, SamplingParams, SpeculationConfig
from tests.backends.reference.calls import Call, running
from tests.backends.reference.micro_model import micro_weights
from tests.backends.reference.naive_llama import naive_logits

TOKENS = 4
RUN = 3
DRAWS = 3000
PARAMS = SamplingParams(RUN, temperature=0.9)
NARROW = replace(PARAMS, top_p=0.85)
MODEL = torch.randn(TOKENS, TOKENS, generator=Generator().manual_seed(3))
DRAFTING = torch.randn(TOKENS, TOKENS, generator=Generator().manual_seed(4))

Verify = Callable[[Tensor, Draft, SamplingParams, Generator], list[int]]


def by_rejection(params: SamplingParams, dice: Generator, last: int) -> Draft:
    tokens: list[int] = []
    shares = []
    for _ in range(2):
        shares.append(distribution(DRAFTING[last], params))
        last = int(torch.multinomial(shares[-1], 1, generator=dice))
        tokens.append(last)
    return Draft(tokens, torch.stack(shares))


def by_rule(_params: SamplingParams, _dice: Generator, last: int) -> Draft:
    return Draft([(last + 1) % TOKENS, (last + 2) % TOKENS])


def runs(verify: Verify, drafted: Callable[..., Draft], params: SamplingParams) -> "Counter[tuple[int, ...]]":
    dice = Generator().manual_seed(5)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(DRAWS):
        run = [0]
        while len(run) <= RUN:
            draft = drafted(params, dice, run[-1])
            run += verify(MODEL[[run[-1], *draft.tokens]], draft, params, dice)
        seen[tuple(run[1 : RUN + 1])] += 1
    return seen


def expected_runs(params: SamplingParams) -> dict[tuple[int, ...], float]:
    shares = [distribution(row, params).tolist() for row in MODEL]
    every = product(range(TOKENS), repeat=RUN)
    return {(a, b, c): shares[0][a] * shares[a][b] * shares[b][c] for a, b, c in every}


def excess(seen: "Counter[tuple[int, ...]]", expected: dict[tuple[int, ...], float]) -> float:
    """Chi-squared as a normal deviate (Wilson and Hilferty 1931); rare cells are one."""
    draws = seen.total()
    assert all(expected[run] > 0 for run in seen)
    cells = [(seen[run], share * draws) for run, share in expected.items() if share * draws >= 5]
    rare = sum(share for share in expected.values() if share * draws < 5) * draws
    if rare >= 1:
        cells.append((draws - sum(count for count, _ in cells), rare))
    squares = sum((count - wanted) ** 2 / wanted for count, wanted in cells)
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    return (math.cbrt(squares / freedom) - (1 - spread)) / math.sqrt(spread)


LIMIT = 3.1
"""Of a normal deviate: one in a thousand is above it."""


@pytest.mark.parametrize("drafted", [by_rejection, by_rule])
@pytest.mark.parametrize("params", [PARAMS, NARROW])
def test_runs_of_tokens_are_as_likely_as_without_drafts(drafted: Callable[..., Draft], params: SamplingParams) -> None:
    assert excess(runs(verified, drafted, params), expected_runs(params)) < LIMIT


def believing(logits: Tensor, draft: Draft, params: SamplingParams, dice: Generator) -> list[int]:
    return [*draft.tokens, sample(logits[-1], params, dice)]


def without_the_rest(
    logits: Tensor, draft: Draft, params: SamplingParams, dice: Generator, *, slack: float = 1.0
) -> list[int]:
    """What is rejected is drawn anew from all tokens, and not from those that the draft lacks."""
    kept: list[int] = []
    assert draft.shares is not None
    for row, token, shares in zip(logits, draft.tokens, draft.shares, strict=False):
        if torch.rand(1, generator=dice) * shares[token] >= distribution(row, params)[token] * slack:
            return [*kept, sample(row, params, dice)]
        kept.append(token)
    return [*kept, sample(logits[-1], params, dice)]


@pytest.mark.parametrize("wrong", [believing, without_the_rest, partial(without_the_rest, slack=1.3)])
def test_the_test_would_notice(wrong: Verify) -> None:
    assert excess(runs(wrong, by_rejection, PARAMS), expected_runs(PARAMS)) > 2 * LIMIT


def test_an_engine_with_a_draft_model_draws_what_its_model_says() -> None:
    vocab, prompt = 5, [1, 3, 2, 4, 0, 1]
    weights = micro_weights(vocab=vocab)
    config = EngineConfig(
        model="tiny", kv_blocks=64, max_num_seqs=32, speculation=SpeculationConfig(DraftMethod.MODEL, 2, layers=1)
    )
    params = SamplingParams(2, temperature=1.3, top_k=4, ignore_eos=True)
    first = distribution(naive_logits(weights, prompt)[-1], params)
    expected: dict[tuple[int, ...], float] = {
        (a, b): float(first[a] * distribution(naive_logits(weights, [*prompt, a])[-1], params)[b])
        for a in range(vocab)
        for b in range(vocab)
    }
    with running(weights, config) as engine:
        calls = [Call(engine, prompt, replace(params, seed=seed)) for seed in range(1500)]
        receipts = [call.finish().receipt for call in calls]
    seen = Counter(tuple(call.tokens) for call in calls)
    assert {one.drafted_tokens for one in receipts} == {1}
    assert excess(seen, expected) < LIMIT
