"""The whole engine on a small model: same text from a cold, warm, partial, chunked, batched or preempted cache.

The oracle recomputes the whole sequence for each token, without a cache.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backends.reference.decoder import PagedDecoder
from backends.reference.embedded import build_service
from backends.reference.engine import Engine, KvCache
from backends.reference.errors import EngineStopped
from backends.reference.types import (
    DraftMethod,
    EngineConfig,
    FinishReason,
    RequestId,
    SamplingParams,
    SpeculationConfig,
)
from backends.reference.weights import ModelWeights
from tests.backends.reference.calls import DEADLINE_S, Call, ask, running, stats
from tests.backends.reference.micro_model import micro_weights
from tests.backends.reference.naive_llama import naive_greedy

CONFIG = EngineConfig(model="tiny", kv_blocks=64)
GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
PROMPT = tuple((31 * i * i + 17 * i + 100) % 49_152 for i in range(40))
OTHER = tuple((29 * i * i + 11 * i + 5) % 49_152 for i in range(40))


@pytest.fixture
def engine(micro: ModelWeights) -> Iterator[Engine]:
    with running(micro, CONFIG) as one:
        yield one


@pytest.fixture(scope="module")
def expected(micro: ModelWeights) -> list[int]:
    return naive_greedy(micro, list(PROMPT), GREEDY.max_tokens)


def test_cold_and_warm_say_the_same(engine: Engine, expected: list[int]) -> None:
    cold, warm = ask(engine, PROMPT, GREEDY), ask(engine, PROMPT, GREEDY)
    assert cold.tokens == warm.tokens == expected
    assert cold.text == warm.text


def test_a_partial_hit_says_the_same(engine: Engine, expected: list[int]) -> None:
    ask(engine, PROMPT[:20] + OTHER[:20], GREEDY)
    call = Call(engine, PROMPT, GREEDY)
    assert call.finish().receipt.cached_tokens == 16
    assert call.tokens == expected


@pytest.mark.parametrize("tokens_a_step", [1, 3, 7, 16, 39])
def test_any_prefill_chunk_says_the_same(micro: ModelWeights, expected: list[int], tokens_a_step: int) -> None:
    with running(micro, replace(CONFIG, max_batched_tokens=tokens_a_step, max_num_seqs=1)) as engine:
        assert ask(engine, PROMPT, GREEDY).tokens == expected


@pytest.mark.parametrize("block_size", [1, 5, 64])
def test_any_block_size_says_the_same(micro: ModelWeights, expected: list[int], block_size: int) -> None:
    with running(micro, replace(CONFIG, block_size=block_size)) as engine:
        assert ask(engine, PROMPT, GREEDY).tokens == ask(engine, PROMPT, GREEDY).tokens == expected


def test_a_batch_says_the_same(micro: ModelWeights, expected: list[int]) -> None:
    other = naive_greedy(micro, list(OTHER), GREEDY.max_tokens)
    with running(micro, replace(CONFIG, max_batched_tokens=24)) as engine:
        calls = [Call(engine, prompt, GREEDY) for prompt in (PROMPT, OTHER, PROMPT, OTHER)]
        for call in calls:
            call.finish()
        assert [call.tokens for call in calls] == [expected, other, expected, other]


def test_cached_tokens_are_exactly_the_tokens_that_were_not_computed(engine: Engine) -> None:
    for prompt in (PROMPT, PROMPT, PROMPT[:33] + OTHER, PROMPT[:32], OTHER[:7], PROMPT):
        before = stats(engine).computed_tokens
        receipt = Call(engine, prompt, GREEDY).finish().receipt
        computed = stats(engine).computed_tokens - before
        # The last sampled token is not computed any more.
        assert computed == len(prompt) - receipt.cached_tokens + receipt.completion_tokens - 1
        assert receipt.cached_tokens <= (len(prompt) - 1) // 16 * 16


def test_the_answer_is_cached_for_the_next_turn(engine: Engine) -> None:
    first = ask(engine, PROMPT, replace(GREEDY, max_tokens=30))
    turn = PROMPT + tuple(first.tokens) + OTHER[:3]
    # 70 tokens of which 69 were computed: 4 whole blocks.
    assert Call(engine, turn, GREEDY).finish().receipt.cached_tokens == 64


def test_salts_never_share(engine: Engine, expected: list[int]) -> None:
    salts = ["", "tenant-a", "tenant-b"]
    for salt in salts:
        call = Call(engine, PROMPT, GREEDY, salt)
        assert call.finish().receipt.cached_tokens == 0
        assert call.tokens == expected
    for salt in salts:
        assert Call(engine, PROMPT, GREEDY, salt).finish().receipt.cached_tokens == 32


def test_preempted_requests_say_the_same_and_all_finish(micro: ModelWeights) -> None:
    long = replace(GREEDY, max_tokens=24)
    prompts = [PROMPT[:20], OTHER[:20], PROMPT[5:25]]
    wanted = [naive_greedy(micro, list(prompt), long.max_tokens) for prompt in prompts]
    # 44 tokens each, in blocks of 4: three need 33 blocks, and there are 16.
    with running(micro, replace(CONFIG, block_size=4, kv_blocks=16)) as engine:
        calls = [Call(engine, prompt, long) for prompt in prompts]
        receipts = [call.finish().receipt for call in calls]
        after = stats(engine)
        assert [call.tokens for call in calls] == wanted
        assert after.preemptions > 0
        assert (after.free_blocks, after.held_blocks) == (16, 0)
        exposition = engine.metrics.exposition().decode()
    assert [receipt.cached_tokens for receipt in receipts] == [0, 0, 0]
    assert 'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 60.0' in exposition
    assert 'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 0.0' in exposition
    assert f'vllm:num_preemptions_total{{engine="0",model_name="tiny"}} {after.preemptions}.0' in exposition


def test_an_abort_frees_the_blocks_and_the_text_so_far_stays_cached(engine: Engine) -> None:
    call = Call(engine, PROMPT, replace(GREEDY, max_tokens=500))
    call.next()
    assert stats(engine).held_blocks > 0
    engine.abort(call.request.request_id)
    assert call.finish().finish is FinishReason.ABORT
    after = stats(engine)
    assert (after.held_blocks, after.running) == (0, 0)
    assert after.cached_blocks >= 2


def test_a_request_aborted_while_it_waits_counts_nothing(micro: ModelWeights) -> None:
    with running(micro, replace(CONFIG, max_num_seqs=1)) as engine:
        talker = Call(engine, PROMPT, replace(GREEDY, max_tokens=500))
        talker.next()
        waiting = Call(engine, OTHER, GREEDY)
        assert stats(engine).waiting == 1
        engine.abort(waiting.request.request_id)
        assert waiting.finish().receipt.completion_tokens == 0
        assert (
            'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 40.0' in engine.metrics.exposition().decode()
        )


def test_an_unknown_abort_is_ignored(engine: Engine) -> None:
    engine.abort(RequestId("nobody"))
    assert ask(engine, PROMPT, GREEDY).tokens


def test_reset_forgets_the_cache_but_not_under_a_running_request(engine: Engine) -> None:
    call = Call(engine, PROMPT, replace(GREEDY, max_tokens=500))
    call.next()
    assert engine.reset_prefix_cache().result(DEADLINE_S) is False
    engine.abort(call.request.request_id)
    call.finish()
    assert engine.reset_prefix_cache().result(DEADLINE_S) is True
    assert Call(engine, PROMPT, GREEDY).finish().receipt.cached_tokens == 0


def test_a_small_cache_evicts_what_was_used_longest_ago(micro: ModelWeights) -> None:
    with running(micro, replace(CONFIG, kv_blocks=4)) as engine:
        ask(engine, PROMPT, GREEDY)
        ask(engine, OTHER, GREEDY)
        # Each leaves two whole blocks; the second needed one block more than were blank and took the first one's tail.
        assert Call(engine, PROMPT, GREEDY).finish().receipt.cached_tokens == 16
        assert stats(engine).evicted_blocks > 0


def test_seeded_sampling_does_not_depend_on_the_neighbours(engine: Engine) -> None:
    dice = SamplingParams(max_tokens=8, temperature=0.9, top_p=0.9, seed=5, ignore_eos=True)
    alone = ask(engine, PROMPT, dice)
    crowd = [Call(engine, prompt, dice) for prompt in (OTHER, PROMPT, OTHER[:9])]
    for call in crowd:
        call.finish()
    assert crowd[1].tokens == alone.tokens


def test_the_answer_ends_at_the_end_of_sequence_unless_told_to_go_on(micro: ModelWeights, expected: list[int]) -> None:
    ending = replace(micro, shape=replace(micro.shape, eos_token_ids=frozenset({expected[2]})))
    with running(ending, CONFIG) as engine:
        call = Call(engine, PROMPT, replace(GREEDY, ignore_eos=False))
        last = call.finish()
        assert (last.finish, last.stop_reason, last.receipt.completion_tokens) == (FinishReason.STOP, None, 3)
        assert call.tokens == expected[:3]
        assert ask(engine, PROMPT, GREEDY).tokens == expected


def test_a_stop_token_ends_the_answer_without_its_text(engine: Engine, expected: list[int]) -> None:
    whole = ask(engine, PROMPT, GREEDY).text
    call = Call(engine, PROMPT, replace(GREEDY, stop_token_ids=(expected[3],)))
    last = call.finish()
    assert (last.finish, last.stop_reason) == (FinishReason.STOP, expected[3])
    assert whole.startswith(call.text)
    assert len(call.text) < len(whole)


def test_a_stop_string_ends_the_answer_before_itself(engine: Engine) -> None:
    whole = ask(engine, PROMPT, GREEDY).text
    stop = whole[len(whole) // 2 :][:3]
    call = Call(engine, PROMPT, replace(GREEDY, stop=(stop,)))
    last = call.finish()
    assert (last.finish, last.stop_reason) == (FinishReason.STOP, stop)
    assert call.text == whole[: whole.index(stop)]


def test_the_limit_ends_the_answer_with_all_its_text(engine: Engine) -> None:
    plain = ask(engine, PROMPT, GREEDY)
    guarded = Call(engine, PROMPT, replace(GREEDY, stop=("a stop string that never comes",)))
    assert guarded.finish().finish is FinishReason.LENGTH
    assert guarded.text == plain.text


def test_a_stopped_engine_ends_open_requests_and_refuses_new_ones(micro: ModelWeights) -> None:
    with running(micro, CONFIG) as engine:
        call = Call(engine, PROMPT, replace(GREEDY, max_tokens=900))
        call.next()
        engine.stop()
        assert call.finish().finish is FinishReason.ABORT
        with pytest.raises(EngineStopped, match="stopped"):
            ask(engine, PROMPT, GREEDY)


def test_what_arrives_right_after_the_stop_is_still_answered(micro: ModelWeights) -> None:
    engine = build_service(CONFIG, micro).engine
    engine.begin_stop()
    late = Call(engine, PROMPT, GREEDY)
    engine.start()
    engine.stop()
    assert late.finish().finish is FinishReason.ABORT


def test_a_failing_step_ends_open_requests_with_an_error(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(PagedDecoder, "forward", fail)
    assert Call(engine, PROMPT, GREEDY).finish().finish is FinishReason.ERROR
    engine.stop()
    assert engine.ended == "MemoryError"
    assert "engine step failed" in caplog.text


def test_who_no_longer_waits_for_the_cache_does_not_end_the_engine(engine: Engine, expected: list[int]) -> None:
    touched: list[KvCache] = []
    # Nothing more is taken in until the gate opens, so that what is given up has not begun.
    gate = threading.Event()
    engine.between_steps(lambda _: gate.wait(DEADLINE_S))
    given_up = engine.between_steps(touched.append)
    assert given_up.cancel()
    gate.set()
    assert ask(engine, PROMPT, GREEDY).tokens == expected
    assert not touched


def test_what_fails_between_two_steps_ends_the_engine_and_leaves_nobody_waiting(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: KvCache) -> None:
        raise MemoryError

    with pytest.raises(EngineStopped):
        engine.between_steps(fail).result(DEADLINE_S)
    engine.stop()
    assert engine.ended == "MemoryError"
    assert "engine step failed" in caplog.text


def test_the_context_is_no_longer_than_model_cache_and_setting_allow() -> None:
    weights = micro_weights(vocab=100)

    def limit(kv_blocks: int, max_model_len: int | None = None) -> int:
        config = replace(CONFIG, kv_blocks=kv_blocks, max_model_len=max_model_len)
        return build_service(config, weights).engine.max_model_len

    assert limit(1024) == weights.shape.max_positions
    assert limit(10) == 160
    assert limit(10, 99) == 99


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        replace(CONFIG, block_size=0)
    with pytest.raises(ValueError, match="kv_blocks must be at least 1"):
        replace(CONFIG, kv_blocks=0)
    with pytest.raises(ValueError, match="at least max_num_seqs"):
        replace(CONFIG, max_batched_tokens=2)


LOOKUP, MODEL = SpeculationConfig(), SpeculationConfig(DraftMethod.MODEL, layers=1)


@pytest.mark.parametrize("speculation", [None, LOOKUP, MODEL])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_prompt_of_which_the_model_makes_no_numbers_ends_alone(
    micro: ModelWeights, speculation: SpeculationConfig | None, temperature: float
) -> None:
    embedding = micro.embedding.clone()
    embedding[OTHER[-1]] = float("nan")
    sampling = replace(GREEDY, temperature=temperature, seed=1)
    with running(replace(micro, embedding=embedding), replace(CONFIG, speculation=speculation)) as engine:
        calls = [Call(engine, prompt, sampling) for prompt in (PROMPT, OTHER, PROMPT)]
        assert [call.finish().finish for call in calls] == [
            FinishReason.LENGTH,
            FinishReason.ERROR,
            FinishReason.LENGTH,
        ]
        assert ask(engine, PROMPT, GREEDY).tokens == naive_greedy(micro, list(PROMPT), GREEDY.max_tokens)
        assert stats(engine).held_blocks == 0
