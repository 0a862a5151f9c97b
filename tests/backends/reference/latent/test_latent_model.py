"""Latent attention absorbed is latent attention expanded, experts of a batch are those of each token, and rows in
blocks are as good as none."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from backends.reference.latent import (
    Experts,
    LatentAttention,
    LatentModel,
    LatentShape,
    PagedRows,
    bits_per_byte,
    busiest,
    decoded,
    mixture,
    new_model,
    scores,
    trained,
)
from backends.reference.layers import causal_mask, rotary_tables

SMALL = LatentShape(
    layers=2, hidden=24, heads=3, head_dim=6, latent=10, rope=4, experts=5, active=2, inner=7, shared=9, vocab=40
)
SHAPES = [SMALL, replace(SMALL, kv_heads=3), replace(SMALL, kv_heads=1), replace(SMALL, experts=0, active=0)]
PROMPT = [(7 * i + i * i) % SMALL.vocab for i in range(26)]
BLOCKS, BLOCK = 16, 4


def small(shape: LatentShape = SMALL, seed: int = 0) -> LatentModel:
    return new_model(shape, Generator().manual_seed(seed))


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def naive(layer: LatentAttention, x: Tensor, theta: float) -> Tensor:
    """Head by head and token by token, float64, rotation by complex numbers."""
    x = x.double()
    rope, heads, nope = layer.turned, *layer.key_up.shape[:2]

    def turned(vector: Tensor, at: int) -> Tensor:
        half = rope // 2
        angles = torch.tensor([at * theta ** (-2 * pair / rope) for pair in range(half)], dtype=torch.float64)
        both = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([both.real, both.imag])

    asked = (x @ layer.query.double().T).view(len(x), heads, nope + rope)
    left = x @ layer.down.double().T
    latents = left[:, : layer.latent]
    latents = latents / (latents.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * layer.latent_norm.double()
    rows = []
    for at in range(len(x)):
        taken = []
        for head in range(heads):
            query = torch.cat([asked[at, head, :nope], turned(asked[at, head, nope:], at)])
            keys = [
                torch.cat([layer.key_up[head].double() @ latents[n], turned(left[n, layer.latent :], n)])
                for n in range(at + 1)
            ]
            share = torch.stack([key @ query for key in keys]).div((nope + rope) ** 0.5).softmax(0)
            taken.append(share @ (latents[: at + 1] @ layer.value_up[head].double().T))
        rows.append(layer.out.double() @ torch.cat(taken))
    return torch.stack(rows)


@pytest.mark.parametrize("is_absorbing", [False, True])
def test_latent_attention_is_what_its_definition_says(is_absorbing: bool) -> None:
    model = small().absorbing() if is_absorbing else small()
    layer = model.layers[0].attention
    assert isinstance(layer, LatentAttention)
    x = torch.randn(9, SMALL.hidden, generator=Generator().manual_seed(1))
    turns = rotary_tables(9, SMALL.rope, SMALL.rope_theta)
    found = layer.answer(x, layer.rows(x, turns), turns, causal_mask(9, 9, x.device))
    close(found.double(), naive(layer, x, SMALL.rope_theta))


@settings(max_examples=40)
@given(
    cuts=st.sets(st.integers(1, len(PROMPT) - 1)).map(sorted),
    table=st.permutations(range(BLOCKS)),
    shape=st.sampled_from(SHAPES),
    absorbing=st.lists(st.booleans(), min_size=26, max_size=26),
)
def test_any_chunks_in_any_blocks_expanded_or_absorbed_give_the_same_logits(
    cuts: list[int], table: list[int], shape: LatentShape, absorbing: list[bool]
) -> None:
    model = small(shape)
    wanted = scores(model, torch.tensor(PROMPT))
    cache = PagedRows(model, blocks=BLOCKS, block_size=BLOCK)
    for (start, end), is_absorbing in zip(pairwise([0, *cuts, len(PROMPT)]), absorbing, strict=False):
        found = decoded(model.absorbing() if is_absorbing else model, PROMPT[start:end], start, table, cache)
        close(found, wanted[start:end])


def test_a_model_elsewhere_is_the_same_and_learns_nothing() -> None:
    model = small()
    there = model.on("meta")
    assert [one.shape for one in there.tensors()] == [one.shape for one in model.tensors()]
    assert not any(one.requires_grad for one in there.tensors())
    close(scores(model.on("cpu"), torch.tensor(PROMPT)), scores(model, torch.tensor(PROMPT)))


def test_a_batch_of_texts_has_the_logits_of_each() -> None:
    model = small()
    texts = torch.tensor([PROMPT, PROMPT[::-1]])
    close(scores(model, texts), torch.stack([scores(model, one) for one in texts]))


def naive_mixture(x: Tensor, experts: Experts) -> Tensor:
    """One token, expert by expert, float64."""

    def passed(gate_up: Tensor, down: Tensor) -> Tensor:
        gate, up = (gate_up.double() @ x).chunk(2)
        return down.double() @ (gate * torch.sigmoid(gate) * up)

    x = x.double()
    logits = (experts.router.double() @ x).tolist()
    chosen = sorted(range(len(logits)), key=lambda one: -logits[one])[: experts.active]
    shares = torch.tensor([logits[one] for one in chosen], dtype=torch.float64).softmax(0)
    out = passed(experts.shared_gate_up, experts.shared_down)
    for share, one in zip(shares, chosen, strict=True):
        out = out + share * passed(experts.gate_up[one], experts.down[one])
    return out


@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 2**32))
def test_experts_of_a_batch_are_those_of_each_token_alone(tokens: int, active: int, seed: int) -> None:
    layer = small(replace(SMALL, active=active)).layers[0].experts
    x = torch.randn(tokens, SMALL.hidden, generator=Generator().manual_seed(seed))
    found = mixture(x, layer)
    close(found, torch.cat([mixture(one[None], layer) for one in x]))
    close(found.double(), torch.stack([naive_mixture(one, layer) for one in x]))


def test_the_busiest_expert_is_told_by_its_share() -> None:
    layer = small(replace(SMALL, active=1)).layers[0].experts
    x = torch.randn(200, SMALL.hidden, generator=Generator().manual_seed(5))
    assert 1 / SMALL.experts <= busiest(x, layer) < 1
    assert busiest(x[:1], layer) == 1


def test_a_token_leaves_what_its_attention_says_and_no_more() -> None:
    def left(shape: LatentShape) -> int:
        return PagedRows(small(shape), blocks=1, block_size=1).bytes_per_token

    layers, numbers = SMALL.layers, 4
    assert left(SMALL) == layers * (SMALL.latent + SMALL.rope) * numbers
    assert left(replace(SMALL, kv_heads=3)) == layers * 2 * 3 * SMALL.head_dim * numbers
    assert left(replace(SMALL, kv_heads=1)) == layers * 2 * SMALL.head_dim * numbers


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_is_learned(shape: LatentShape) -> None:
    model = small(shape)
    data = torch.tensor(PROMPT * 8)
    before = bits_per_byte(model, data, length=16)
    losses = trained(model, data, steps=60, dice=Generator().manual_seed(2), batch=4, length=16)
    assert losses[-1] < losses[0] / 2
    assert bits_per_byte(model, data, length=16) < before / 2
