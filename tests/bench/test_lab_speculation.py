"""Speculation, latent caches, experts, and prompts that are carried: each theme measures what it says."""

from dataclasses import replace

import pytest
import torch

from backends.reference.latent import LatentShape
from bench.engine_lab import THEMES, measured
from bench.lab import latent, speculation
from bench.lab.types import Figure, number
from tests.bench.micro_lab import TEXT, micro_lab


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    shape = LatentShape(layers=1, hidden=16, heads=2, head_dim=4, latent=6, rope=2, experts=4, inner=8, shared=8)
    monkeypatch.setattr(latent, "SHAPE", shape)
    monkeypatch.setattr(latent, "DENSE", replace(shape, experts=0, active=0, shared=24))
    grouped = replace(shape, kv_heads=1)
    monkeypatch.setattr(latent, "ATTENTIONS", {"MHA": replace(shape, kv_heads=2), "GQA, 2 heads of keys": grouped})
    monkeypatch.setattr(latent, "text", lambda: torch.tensor(list(TEXT.encode())))
    monkeypatch.setattr(latent, "STEPS", 2)
    monkeypatch.setattr(latent, "CONTEXT", 64)
    monkeypatch.setattr(latent, "TOKENS", 16)
    monkeypatch.setattr(latent, "JUDGED_BYTES", 257)
    monkeypatch.setattr(speculation, "OUTPUT", 8)
    monkeypatch.setattr(speculation, "GREEDY", replace(speculation.GREEDY, max_tokens=8))


def rows_of(name: str) -> list[dict[str, Figure]]:
    [theme] = [one for one in THEMES if one.name == name]
    rows, goals = measured(micro_lab(), [theme])
    assert goals
    assert len({tuple(row) for row in rows}) == 1
    return [dict(row) for row in rows]


def test_speculation_is_measured_on_texts_that_quote_and_on_others() -> None:
    rows = rows_of("speculation")
    assert [row["text"] for row in rows] == ["quoting"] * 3 + ["free"] * 3
    assert {row["same tokens"] for row in rows} == {"yes"}
    assert [row["drafts kept"] for row in rows if row["technique"] == "plain"] == [None, None]


def test_caches_are_measured_by_attention() -> None:
    rows = rows_of("latent cache")
    assert [row["cache, bytes a token"] for row in rows] == [64, 32, 32, 32]
    assert rows[-1]["bits a byte"] == rows[-2]["bits a byte"]


def test_experts_are_measured_beside_a_model_of_as_much_computation() -> None:
    dense, mixed = rows_of("experts")
    routers = 4 * 16
    assert mixed["of a token"] == number(dense["of a token"]) + routers
    assert number(mixed["weights"]) > number(dense["weights"])


def test_prompts_that_are_carried_give_the_same_tokens() -> None:
    assert [row["same tokens"] for row in rows_of("prefill and decode apart")] == ["yes", "yes"]
