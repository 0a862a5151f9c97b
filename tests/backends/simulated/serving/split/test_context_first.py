"""TensorRT-LLM's two calls: the right sequence works, every wrong one is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.backends.simulated.serving.split.pairs import FAST, TEXT, Pair, cached, chat, pair_of, said


@pytest.fixture
def context_first() -> Iterator[Pair]:
    with pair_of("trtllm") as pair:
        yield pair


def context(pair: Pair, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the generation server needs: its params, and the prompt as token ids."""
    asked = {"request_type": "context_only", "disagg_request_id": 77}
    answer = chat(pair[0], disaggregated_params=asked, **more).json()
    params = answer["choices"][0]["disaggregated_params"]
    told = {**params, "request_type": "generation_only", "ctx_usage": answer["usage"]}
    return told, {"prompt_token_ids": answer["prompt_token_ids"]}


def test_the_generation_server_goes_on_from_the_context_servers_token(context_first: Pair) -> None:
    for expected in (0, 128):
        params, ids = context(context_first)
        answer = chat(context_first[1], disaggregated_params=params, **ids)
        assert (said(answer), cached(answer)) == (TEXT, expected)
    assert len(params["first_gen_tokens"]) == 1


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"ctx_request_id": 5}, 500),
        ({"first_gen_tokens": [1]}, 500),
        ({"disagg_request_id": 78}, 500),
        ({"encoded_opaque_state": "abc"}, 400),
        ({"encoded_opaque_state": None}, 400),
        ({"ctx_request_id": None}, 400),
        ({"request_type": "something"}, 400),
    ],
)
def test_wrong_params_are_refused_and_the_right_ones_work_once(
    context_first: Pair, wrong: dict[str, object], status: int
) -> None:
    params, ids = context(context_first)
    assert chat(context_first[1], disaggregated_params={**params, **wrong}, **ids).status_code == status
    assert chat(context_first[1], disaggregated_params=params).status_code == 400  # not as token ids
    assert chat(context_first[1], disaggregated_params=params, **ids).status_code == 200
    assert "fetched before" in chat(context_first[1], disaggregated_params=params, **ids).text


def test_a_context_only_request_is_no_stream_and_needs_a_server_that_splits(context_first: Pair) -> None:
    asked = {"request_type": "context_only", "disagg_request_id": 1}
    assert chat(context_first[0], disaggregated_params=asked, stream=True).status_code == 400
    assert chat(context_first[0], disaggregated_params=asked, n=2).status_code == 400
    with SimulatedServer(ServerSpec(dialect="trtllm", model="m", speed=FAST)) as plain:
        assert chat(plain, disaggregated_params=asked).status_code == 400
