"""How probable a prompt is: as a plain forward pass has it, whatever the parts and whatever is cached."""

import httpx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference import scoring
from backends.reference.block_pool import BlockPool
from backends.reference.decoder import PagedDecoder
from backends.reference.embedded import RunningEngine
from backends.reference.errors import RequestRefused
from backends.reference.scoring import scored
from tests.backends.reference.micro_model import micro_weights
from tests.backends.reference.naive_llama import naive_logits

VOCAB = 50
BLOCK = 4
WEIGHTS = micro_weights(vocab=VOCAB)
PROMPT = [(7 * i + i * i) % VOCAB for i in range(26)]


def new_parts(kv_blocks: int = 16) -> tuple[PagedDecoder, BlockPool]:
    return PagedDecoder(WEIGHTS, kv_blocks=kv_blocks, block_size=BLOCK, max_positions=64), BlockPool(kv_blocks)


def expected(tokens: list[int]) -> list[float]:
    logprobs = torch.log_softmax(naive_logits(WEIGHTS, tokens), dim=-1)
    return [float(logprobs[at, token]) for at, token in enumerate(tokens[1:])]


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, len(PROMPT)), part=st.integers(1, 30))
def test_each_token_has_the_probability_of_a_plain_forward_pass(length: int, part: int) -> None:
    decoder, pool = new_parts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "PART_TOKENS", part)
        found = scored(decoder, pool, BLOCK, PROMPT[:length])
    assert found == pytest.approx(expected(PROMPT[:length]), abs=1e-4)
    assert pool.held_blocks == 0


def test_what_is_held_by_others_is_not_taken() -> None:
    decoder, pool = new_parts(kv_blocks=4)
    pool.allocate()
    with pytest.raises(RequestRefused) as refused:
        scored(decoder, pool, BLOCK, PROMPT[: 4 * BLOCK])
    assert refused.value.status == 503
    assert pool.held_blocks == 1


async def test_over_http_it_is_told_as_vllm_tells_it_and_the_answer_stays_the_same(
    client: httpx.AsyncClient, served: RunningEngine
) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    plain = (await client.post("/v1/completions", json=body)).raise_for_status().json()
    again = {**body, "prompt_logprobs": 0}
    for _ in range(2):  # the second finds the prompt cached
        page = (await client.post("/v1/completions", json=again)).raise_for_status().json()
        [choice] = page["choices"]
        assert choice["text"] == plain["choices"][0]["text"]
        assert choice["token_ids"] is None
        first, *told = choice["prompt_logprobs"]
        assert first is None
        assert [next(iter(one)) for one in told] == [str(token) for token in PROMPT[1:]]
        assert all(one[str(token)]["logprob"] < 0 for one, token in zip(told, PROMPT[1:], strict=True))
    assert plain["choices"][0]["prompt_logprobs"] is None
    assert served.stats().held_blocks == 0


@pytest.mark.parametrize("more", [{"prompt_logprobs": 1}, {"prompt_logprobs": 0, "stream": True}])
async def test_what_is_not_told_is_refused(shared_client: httpx.AsyncClient, more: dict[str, object]) -> None:
    answer = await shared_client.post("/v1/completions", json={"prompt": "Hi", **more})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt_logprobs"
