"""The benchmark of the way from body to chain: what it feeds, what it times, and what it says."""

import json
import random
from array import array
from pathlib import Path

import pytest
import tokenizers

from backends.reference.model_files import ensure_model
from bench import tokens
from bench.conversations import SIZES, TEXTS, Size, chat_body, conversation, read_text
from bench.divergence_cost import Cost, divergence_costs, divergence_goals
from bench.resident import BOUND_BYTES, CACHES, Growth, growth_alone, growth_of
from bench.tiktoken_twin import tiktoken_twin
from bench.tokens import STAGES, TokenBench, goals_of
from prefix_index.blocks import chain_of, prompt_root
from prefix_index.token_bytes import pack

SMALL = Size("small", 1_500, 4)


@pytest.fixture(scope="module")
def bench() -> TokenBench:
    return TokenBench()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
@pytest.mark.parametrize("text", TEXTS)
def test_conversations_have_the_size_they_are_named_after(text: str, size: Size) -> None:
    messages = conversation(read_text(text), size, random.Random(1))
    assert len(chat_body(messages)) == pytest.approx(size.body_bytes, rel=0.35)
    roles = [message["role"] for message in messages]
    assert roles == ["system", *["user", "assistant"] * (size.turns - 1), "user"]
    assert len({message["content"] for message in messages}) == len(messages)


def test_the_same_seed_gives_the_same_conversation() -> None:
    text = read_text("code")
    one, other, third = (conversation(text, SMALL, random.Random(seed)) for seed in (1, 1, 2))
    assert one == other != third


@pytest.mark.parametrize("text", TEXTS)
def test_tiktoken_is_timed_on_the_very_same_tokens(text: str) -> None:
    path = ensure_model("smollm2") / "tokenizer.json"
    whole, twin = tokenizers.Tokenizer.from_file(str(path)), tiktoken_twin(path)
    source = read_text(text)
    for said in (source, f"<|im_start|>user\n{source}<|im_end|>"):
        assert twin.encode(said, allowed_special="all") == whole.encode(said).ids


def test_a_run_ends_at_the_chain_of_the_whole_text(bench: TokenBench) -> None:
    messages = conversation(read_text("japanese"), SMALL, random.Random(3))
    first, later, again = (bench.run(chat_body(some)) for some in (messages[:-2], messages, messages))
    root = prompt_root(model="smollm2", adapter=None, kind=b"tokens", block_size=tokens.BLOCK_SIZE, salt=b"bench")
    whole = tokenizers.Tokenizer.from_file(str(ensure_model("smollm2") / "tokenizer.json"))
    assert later.chain == chain_of(pack(array("I", whole.encode(later.text).ids)), root, tokens.BLOCK_SIZE)
    assert first.new_bytes > later.new_bytes > again.new_bytes == 0
    assert len(later.stages_ns) == len(STAGES)


def test_rows_tell_what_was_measured_and_how_far_it_spreads(bench: TokenBench) -> None:
    first, later = bench.rows("latin", SMALL, 3)
    assert (first["state"], later["state"]) == ("first", "next turn")
    for row in (first, later):
        assert row["runs"] == 3
        for name in (*STAGES, "total", "cpu"):
            spread = row[tokens.column(name)]
            assert isinstance(spread, dict)
            assert 0 <= spread["min"] <= spread["median"] <= spread["p90"]
    assert {"whole_tokenizers_us", "whole_tiktoken_us"} <= later.keys() - first.keys()


def test_goals_hold_the_worst_text_against_the_promise() -> None:
    rows = [
        {"size": size, "state": state, "cpu_us": {"median": us}}
        for size, state, us in (
            ("33 KB", "first", 9e9),
            ("33 KB", "next turn", 400.0),
            ("33 KB", "next turn", 501.0),
            ("400 KB", "next turn", 2_999.0),
        )
    ]
    goals = goals_of(rows, [Growth("ChainMemo", 1, 100, 101, 1)])
    assert [(goal.value, goal.met) for goal in goals] == [(501.0, False), (2_999.0, True), (1.01, False)]


def test_each_kind_of_request_is_held_against_earlier_ones_and_the_dearest_usual_one_is_the_goal() -> None:
    costs = divergence_costs(40)
    assert [cost.case for cost in costs] == ["next turn", "one question", "a time in front", "a first turn"]
    assert all(cost.requests >= 2 and 0 < cost.least_us <= cost.median_us for cost in costs)
    usual, dearer, rare = Cost("a", 1, 7.0, 6.0), Cost("b", 1, 9.0, 6.0), Cost("c", 1, 99.0, 6.0, has_goal=False)
    [goal] = divergence_goals([usual, dearer, rare])
    assert (goal.value, goal.met) == (9.0, True)


@pytest.mark.parametrize("cache", CACHES)
def test_growth_is_that_of_resident_memory(cache: str) -> None:
    grown = growth_of(cache, 2_000)
    assert (grown.cache, grown.prompts, grown.bound_bytes) == (cache, 2_000, BOUND_BYTES)
    assert grown.entries == 2_000


def test_a_cache_is_watched_in_a_process_of_its_own() -> None:
    grown = growth_alone("SegmentCache", 20_000)
    assert grown.entries == 20_000
    assert 20_000 * 200 < grown.grown_bytes < 2 * BOUND_BYTES


def test_the_command_prints_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tokens, "SIZES", (SMALL, *SIZES[1:2]))
    monkeypatch.setattr(tokens, "RUNS", {"small": 3, "33 KB": 3})
    monkeypatch.setattr(tokens, "MOST_US", {"33 KB": 0.0})
    monkeypatch.setattr(tokens, "UNIQUE_PROMPTS", 10_000)
    monkeypatch.setattr(tokens, "DIVERGENCE_REQUESTS", 100)
    assert tokens.main(["--quick", "--to", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((tmp_path / "tokens.json").read_text())
    assert "NOT MET  next turn of 33 KB" in printed.err
