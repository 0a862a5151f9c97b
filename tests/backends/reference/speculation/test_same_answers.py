"""A speculating engine gives the answers of one that does not: tokens, text, cached tokens, whatever is drafted."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.engine import Engine
from backends.reference.errors import ModelUnsupported
from backends.reference.generation import Generation
from backends.reference.scheduler import Slice
from backends.reference.speculation import Draft
from backends.reference.speculation.setup import new_drafter
from backends.reference.types import DraftMethod, EngineConfig, FinishReason, SamplingParams, SpeculationConfig
from tests.backends.reference.calls import Call, ask, running, stats
from tests.backends.reference.micro_model import micro_weights

VOCAB = 60
WEIGHTS = micro_weights(vocab=VOCAB)
CONFIG = EngineConfig(model="tiny", kv_blocks=64, block_size=4, max_batched_tokens=32)
LOOKUP = replace(CONFIG, speculation=SpeculationConfig(DraftMethod.LOOKUP, tokens=5))
MODEL = replace(CONFIG, speculation=SpeculationConfig(DraftMethod.MODEL, tokens=3, layers=1))
GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
PROMPTS = [tuple((31 * i * i + 17 * i + start) % VOCAB for i in range(9 + start)) for start in (0, 3, 11)]


def plain(sampling: SamplingParams) -> list[list[int]]:
    with running(WEIGHTS, CONFIG) as engine:
        return [ask(engine, prompt, sampling).tokens for prompt in PROMPTS]


@cache
def expected() -> list[list[int]]:
    return plain(GREEDY)


def finished(calls: Sequence[Call]) -> Sequence[Call]:
    for call in calls:
        call.finish()
    return calls


class Told:
    """Drafts what it is told to: for each step, how many tokens, and which of them are as they will come."""

    def __init__(self, steps: Sequence[Sequence[bool]]) -> None:
        self._steps = list(steps)
        self._answers = dict(zip(PROMPTS, expected(), strict=True))

    def draft(
        self, slices: Sequence[Slice], complete: Sequence[Generation], room_tokens: Sequence[int]
    ) -> Sequence[Draft]:
        told = self._steps.pop() if self._steps else ()
        drafts = []
        for generation, room in zip(complete, room_tokens, strict=True):
            answer = self._answers.get(generation.request.prompt_tokens, [0] * 99)
            at = generation.sequence.output_tokens
            coming = zip(answer[at : at + room], told, strict=False)
            drafts.append(Draft([token if right else (token + 1) % VOCAB for token, right in coming]))
        return drafts


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.booleans(), max_size=6), max_size=20),
    st.integers(1, 7),
    st.integers(1, 6),
    st.sampled_from([12, 18, 64]),
)
def test_greedy_tokens_are_the_same_for_any_draft(
    steps: list[list[bool]], tokens: int, block_size: int, kv_blocks: int
) -> None:
    config = replace(
        CONFIG,
        block_size=block_size,
        kv_blocks=max(kv_blocks, 44 // block_size + 1),
        speculation=SpeculationConfig(tokens=tokens),
    )
    with running(WEIGHTS, config, Told(steps)) as engine:
        calls = [Call(engine, prompt, GREEDY) for prompt in PROMPTS]
        assert [call.tokens for call in finished(calls)] == expected()
        after = stats(engine)
        assert (after.held_blocks, after.free_blocks) == (0, config.kv_blocks)


@pytest.mark.parametrize("config", [LOOKUP, MODEL, replace(MODEL, kv_blocks=13), replace(LOOKUP, kv_blocks=13)])
def test_real_drafts_change_no_token_also_among_neighbours_who_preempt_each_other(config: EngineConfig) -> None:
    with running(WEIGHTS, config) as engine:
        for _ in range(2):
            calls = [Call(engine, prompt, GREEDY) for prompt in PROMPTS]
            assert [call.tokens for call in finished(calls)] == expected()


@pytest.mark.parametrize(
    "sampling", [replace(GREEDY, temperature=0.8), replace(GREEDY, temperature=1, top_p=0.8, top_k=9)]
)
def test_what_is_looked_up_changes_no_token_of_an_answer_with_a_seed(sampling: SamplingParams) -> None:
    dice = replace(sampling, seed=11)
    with running(WEIGHTS, LOOKUP) as engine:
        assert [ask(engine, prompt, dice).tokens for prompt in PROMPTS] == plain(dice)


def right(steps: int = 50) -> Told:
    return Told([[True] * 8] * steps)


def test_right_drafts_take_fewer_steps_and_say_so() -> None:
    config = replace(CONFIG, speculation=SpeculationConfig(tokens=5))
    with running(WEIGHTS, config, right()) as engine:
        last = Call(engine, PROMPTS[0], GREEDY).finish()
        # 24 tokens, up to 6 a step: the last draft has 5, of which the last is the answer's last.
        assert stats(engine).steps == 4
        page = engine.metrics.exposition().decode()
    assert (last.receipt.drafted_tokens, last.receipt.accepted_tokens) == (20, 20)
    assert 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 4.0' in page
    assert 'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 20.0' in page
    assert 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 20.0' in page


def test_a_plain_engine_says_nothing_of_drafts() -> None:
    with running(WEIGHTS, CONFIG) as engine:
        receipt = Call(engine, PROMPTS[0], GREEDY).finish().receipt
        assert (receipt.drafted_tokens, receipt.accepted_tokens) == (None, None)
        assert b"spec_decode" not in engine.metrics.exposition()


def deltas(engine: Engine, sampling: SamplingParams) -> list[object]:
    return [
        (one.text, one.token_ids, one.finish, one.stop_reason, one.receipt.completion_tokens)
        for one in ask(engine, PROMPTS[0], sampling).deltas
    ]


@pytest.mark.parametrize("end", range(6))
def test_an_answer_ends_within_a_draft_as_it_ends_without(end: int) -> None:
    answer = expected()[0]
    stop = replace(GREEDY, stop_token_ids=(answer[end],))
    with running(WEIGHTS, CONFIG) as engine:
        whole = ask(engine, PROMPTS[0], GREEDY).text
        endings = [stop, replace(GREEDY, stop=(whole[2 * end : 2 * end + 3],)), replace(GREEDY, max_tokens=end + 1)]
        wanted = [deltas(engine, one) for one in endings]
    with running(WEIGHTS, replace(CONFIG, speculation=SpeculationConfig(tokens=5)), right()) as engine:
        assert [deltas(engine, one) for one in endings] == wanted


@pytest.mark.parametrize("output", [1, 2, 3, 4, 7, 12])
def test_the_next_turn_finds_as_much_cached_as_without_drafts(output: int) -> None:
    params = replace(GREEDY, max_tokens=output)
    found = []
    for config, drafter in ((CONFIG, None), (replace(CONFIG, speculation=SpeculationConfig(tokens=5)), right())):
        with running(WEIGHTS, config, drafter) as engine:
            answer = ask(engine, PROMPTS[0], params).tokens
            turn = (*PROMPTS[0], *answer, 5, 6, 7)
            found.append(Call(engine, turn, params).finish().receipt.cached_tokens)
    assert found[0] == found[1]


def test_an_answer_is_aborted_between_drafts() -> None:
    with running(WEIGHTS, MODEL) as engine:
        call = Call(engine, PROMPTS[0], replace(GREEDY, max_tokens=200))
        call.next()
        engine.abort(call.request.request_id)
        assert call.finish().finish is FinishReason.ABORT
        assert stats(engine).held_blocks == 0


def test_what_cannot_draft_is_refused() -> None:
    with pytest.raises(ModelUnsupported, match="vocab_size"):
        new_drafter(CONFIG, SpeculationConfig(DraftMethod.MODEL, model="tiny"), WEIGHTS, 100)
    with pytest.raises(ValueError, match="at least 1"):
        SpeculationConfig(tokens=0)
    with pytest.raises(ValueError, match="takes no model"):
        SpeculationConfig(layers=2)
