"""Whatever comes when, and whoever leaves in between: each answer of a speculating engine is that of a plain one."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.engine import Engine
from backends.reference.types import DraftMethod, FinishReason, SamplingParams, SpeculationConfig
from tests.backends.reference.calls import DEADLINE_S, Call, ask, running, stats
from tests.backends.reference.speculation.test_same_answers import CONFIG, GREEDY, PROMPTS, WEIGHTS

LOOPING = tuple(17 + at % 5 for at in range(23))
ASKED = (*PROMPTS, LOOPING, LOOPING[:9], (*LOOPING[:12], *PROMPTS[0]))
LONGEST = max(map(len, ASKED)) + 24
ENDINGS = (
    GREEDY,
    replace(GREEDY, max_tokens=3),
    replace(GREEDY, stop=("1", "$%")),
    replace(GREEDY, stop_token_ids=(21, 40), ignore_eos=False),
)
Told = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    with running(WEIGHTS, CONFIG) as engine:
        yield engine


answers: dict[tuple[tuple[int, ...], SamplingParams], Told] = {}


def told(call: Call) -> Told:
    return [(one.text, one.token_ids, one.finish, one.stop_reason) for one in call.deltas]


def expected(plain: Engine, call: Call) -> Told:
    key = call.request.prompt_tokens, call.request.sampling
    if key not in answers:
        answers[key] = told(ask(plain, *key))
    return answers[key]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.booleans()), min_size=4, max_size=24),
    st.sampled_from(list(product(DraftMethod, (1, 3, 6)))),
    st.sampled_from([1, 3, 4, 8]),
    st.sampled_from([0, 1, 9]),
    st.sampled_from([4, 7, 64]),
)
def test_answers_are_the_plain_engines_in_any_order_of_asking_leaving_and_scoring(
    plain: Engine,
    acts: list[tuple[int, int, bool]],
    drafting: tuple[DraftMethod, int],
    block_size: int,
    spare_blocks: int,
    step_tokens: int,
) -> None:
    method, tokens = drafting
    config = replace(
        CONFIG,
        block_size=block_size,
        kv_blocks=-(-LONGEST // block_size) + spare_blocks,
        max_num_seqs=4,
        max_batched_tokens=step_tokens,
        speculation=SpeculationConfig(method, tokens, layers=1 if method is DraftMethod.MODEL else None),
    )
    calls: list[Call] = []
    with running(WEIGHTS, config) as engine:
        for act, number, is_other in acts:
            if act < 6 or not calls:
                sampling = ENDINGS[number % len(ENDINGS)]
                if is_other and method is DraftMethod.LOOKUP:
                    sampling = replace(sampling, temperature=0.8, top_p=0.9, seed=5)
                calls.append(Call(engine, ASKED[number % len(ASKED)], sampling, "salt" if number % 3 else ""))
            elif act < 8:
                engine.abort(calls[number % len(calls)].request.request_id)
            elif act == 8:
                engine.score(ASKED[number % len(ASKED)]).exception(DEADLINE_S)
            elif not calls[number % len(calls)].is_over:
                calls[number % len(calls)].next()
        for call in calls:
            last = call.deltas[-1] if call.is_over else call.finish()
            wanted = expected(plain, call)
            if last.finish is FinishReason.ABORT:
                assert told(call)[:-1] == wanted[: len(call.deltas) - 1]
            else:
                assert told(call) == wanted
            assert 0 <= (last.receipt.accepted_tokens or 0) <= (last.receipt.drafted_tokens or 0)
            assert last.receipt.completion_tokens == len(call.tokens)
        after = stats(engine)
    assert (after.running, after.waiting, after.held_blocks) == (0, 0, 0)
